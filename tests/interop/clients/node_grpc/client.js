// The official Node client at a desk: see tests/grpc/desk.py.
'use strict';

const readline = require('node:readline');
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const COMMIT = 1;
const ROLLBACK = 2;
const UNKNOWN = 0;
const silent = { debug() {}, info() {}, warn() {}, error() {} };
const options = { endpoints: process.argv[2], namespace: '', logger: silent };
const got = {};
const simples = {};
let producer;

function message(o) {
  return {
    topic: o.topic, body: Buffer.from(o.body), tag: o.tag || undefined, keys: o.key ? [o.key] : [],
    properties: o.property ? new Map([['name', o.property]]) : undefined,
    messageGroup: o.order || undefined,
    deliveryTimestamp: o.deliver_ms ? new Date(o.deliver_ms) : undefined,
  };
}

const subscriptions = (o) => new Map([[o.topic, o.tag]]);

function consume(group, one) {
  const body = one.body.toString();
  const isFirst = !(got[group] ||= []).some(([other]) => other === body);
  got[group].push([body, one.deliveryAttempt, Date.now()]);
  const fails = (body.startsWith('again') && isFirst) || body.startsWith('never');
  return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
}

async function check(one) {
  const body = one.body.toString();
  if (body.endsWith('commit')) return COMMIT;
  return body.endsWith('rollback') ? ROLLBACK : UNKNOWN;
}

const ORDERS = {
  // of several topics it can miss its settings; of transactions on other topics it is not asked
  async producer(o) {
    producer = new Producer({ ...options, topics: o.topics.slice(-1), checker: { check } });
    await producer.startup();
    return {};
  },
  async send(o) {
    return { id: (await producer.send(message(o))).messageId };
  },
  async transact(o) {
    const transaction = producer.beginTransaction();
    const { messageId } = await producer.send(message(o), transaction);
    if (o.end === 'commit') await transaction.commit();
    if (o.end === 'rollback') await transaction.rollback();
    return { id: messageId };
  },
  async push(o) {
    const consumer = new PushConsumer({
      ...options, consumerGroup: o.group, subscriptions: subscriptions(o),
      messageListener: { consume: (one) => consume(o.group, one) },
    });
    await consumer.startup();
    return {};
  },
  async got(o) {
    return { got: got[o.group] || [] };
  },
  async simple(o) {
    simples[o.group] = new SimpleConsumer({
      ...options, consumerGroup: o.group, subscriptions: subscriptions(o), awaitDuration: 2000,
    });
    await simples[o.group].startup();
    return {};
  },
  async receive(o) {
    const messages = [];
    for (const one of await simples[o.group].receive(16, 30_000)) {
      await simples[o.group].changeInvisibleDuration(one, 20_000);
      await simples[o.group].ack(one);
      messages.push({
        id: one.messageId, body: one.body.toString(), tag: one.tag || '', keys: one.keys,
        property: one.properties.get('name') || '', attempt: one.deliveryAttempt,
      });
    }
    return { messages };
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    let said;
    try {
      said = await ORDERS[order.do](order);
    } catch (error) {
      said = { error: String(error) };
    }
    console.log('> ' + JSON.stringify(said));
  }
  process.exit(0);
}

main();
