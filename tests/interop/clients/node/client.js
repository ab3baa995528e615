'use strict';

// Drives ali-ons for the interoperability tests: `produce` and `consume` with the options that the
// programs of the other languages take (tests/interop/runner.py).

const fs = require('fs');
const { parseArgs } = require('util');
const { Consumer, Message, Producer } = require('ali-ons');

const EXIT_TOO_FEW = 3;
const CONNECT_TIMEOUT_MS = 10000;

const quiet = {
  debug() {},
  info() {},
  warn: (...args) => console.error(...args),
  error: (...args) => console.error(...args),
};

// ali-ons asks an HTTP address service only when no name server is given; it insists on a client.
const noHttp = {
  async request() {
    throw new Error('no address service: the name server is given');
  },
};

class Lines {
  constructor(path) {
    this.file = fs.openSync(path, 'w');
  }

  write(line) {
    fs.writeSync(this.file, JSON.stringify(line) + '\n');
  }
}

function common(options) {
  return {
    httpclient: noHttp,
    nameSrv: options.namesrv,
    logger: quiet,
    connectTimeout: CONNECT_TIMEOUT_MS,
  };
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

async function produce(options) {
  const results = new Lines(options.out);
  const producer = new Producer(
    Object.assign(common(options), { producerGroup: options.group || 'PG-node', sendMsgTimeout: 10000 }));
  producer.on('error', fail);
  await producer.ready();
  for (const item of JSON.parse(fs.readFileSync(options.file, 'utf8'))) {
    if (item.mode !== 'sync') {
      throw new Error(`unknown mode: ${item.mode}`);
    }
    const result = await producer.send(toMessage(options.topic, item));
    if (result.sendStatus !== 'SEND_OK') {
      throw new Error(`${item.properties.mid}: ${JSON.stringify(result)}`);
    }
    results.write({
      id: item.properties.mid,
      msgId: result.msgId,
      offsetMsgId: result.msgId,
      queueId: result.messageQueue.queueId,
      offset: Number(result.queueOffset),
    });
  }
  await producer.close();
  return 0;
}

function toMessage(topic, item) {
  const message = new Message(topic, Buffer.from(item.body, 'base64'));
  delete message.properties.TAGS; // the two-argument constructor stores the text "null" otherwise
  if (item.tags) {
    message.tags = item.tags;
  }
  if (item.keys) {
    message.keys = item.keys.split(' ');
  }
  Object.assign(message.properties, item.properties);
  if (item.delayLevel) {
    message.delayTimeLevel = item.delayLevel;
  }
  return message;
}

function describe(message) {
  const properties = Object.fromEntries(
    Object.entries(message.properties).filter(([ name, value ]) => name !== '' && value !== null));
  return {
    topic: message.topic,
    tags: message.tags,
    keys: message.keys,
    properties,
    body: Buffer.from(message.body).toString('base64'),
    queueId: message.queueId,
    offset: message.queueOffset,
    msgId: message.msgId,
    reconsumeTimes: message.reconsumeTimes,
    sysFlag: message.sysFlag,
    storeSize: message.storeSize,
    seenAt: Date.now(),
  };
}

async function consume(options) {
  const lines = new Lines(options.out);
  const rejected = new Set();
  let missing = Number(options.count);
  let done;
  const enough = new Promise(resolve => {
    done = resolve;
    setTimeout(() => resolve(false), Number(options.timeout) * 1000);
  });
  const consumer = new Consumer(Object.assign(common(options), {
    consumerGroup: options.group,
    isBroadcast: options.broadcast,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    rebalanceInterval: 2000,
    maxReconsumeTimes: Number(options['max-reconsume']),
  }));
  consumer.on('error', error => console.error(error));
  for (const topic of options.topic.split(',')) {
    const expression = options.sql ? { expressionType: 'SQL92', subString: options.sql } : options.expression;
    consumer.subscribe(topic, expression, async message => {
      const accepted = !options['reject-once'] || rejected.has(message.properties.mid);
      rejected.add(message.properties.mid);
      lines.write(Object.assign(describe(message), { accepted }));
      if (!accepted) {
        return Consumer.ACTION_RETRY;
      }
      if (--missing === 0) {
        done(true);
      }
      return undefined;
    });
  }
  await consumer.ready();
  console.log('ready');
  const result = await enough;
  await new Promise(resolve => setTimeout(resolve, Number(options['linger-ms'])));
  await consumer.close();
  return result ? 0 : EXIT_TOO_FEW;
}

const text = value => ({ type: 'string', default: value });
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    namesrv: text(''), topic: text(''), group: text(''), file: text(''), out: text(''),
    expression: text('*'), sql: text(''), properties: text(''), count: text('1'), timeout: text('60'),
    'linger-ms': text('1000'), 'max-reconsume': text('16'),
    orderly: { type: 'boolean', default: false },
    'reject-once': { type: 'boolean', default: false },
    broadcast: { type: 'boolean', default: false },
  },
});
const commands = { produce, consume };
const command = commands[positionals[0]];
if (!command) {
  fail(new Error(`unknown command: ${positionals[0]}`));
}
command(values).then(code => process.exit(code), fail);
