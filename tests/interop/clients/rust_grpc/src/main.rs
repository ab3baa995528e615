//! The official Rust client at a desk: see tests/grpc/desk.py. It has no push consumer.
use std::collections::HashMap;
use std::io::BufRead;
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

type Said = Result<Value, Box<dyn std::error::Error>>;

#[derive(Default)]
struct Desk {
    address: String,
    producer: Option<Producer>,
    simples: HashMap<String, (SimpleConsumer, String, String)>,
}

fn text<'a>(order: &'a Value, name: &str) -> &'a str {
    order[name].as_str().unwrap_or("")
}

fn builder(order: &Value) -> MessageBuilder {
    let (topic, body) = (text(order, "topic"), text(order, "body").as_bytes().to_vec());
    let mut one = if text(order, "do") == "transact" {
        MessageBuilder::transaction_message_builder(topic, body)
    } else if !text(order, "order").is_empty() {
        MessageBuilder::fifo_message_builder(topic, body, text(order, "order"))
    } else if let Some(due) = order["deliver_ms"].as_i64() {
        MessageBuilder::delay_message_builder(topic, body, due / 1000)
    } else {
        MessageBuilder::builder().set_topic(topic).set_body(body)
    };
    if !text(order, "tag").is_empty() {
        one = one.set_tag(text(order, "tag"));
    }
    if !text(order, "key").is_empty() {
        one = one.set_keys(vec![text(order, "key")]);
    }
    if !text(order, "property").is_empty() {
        one = one.set_properties(HashMap::from([("name", text(order, "property"))]));
    }
    one
}

fn check(_: String, message: MessageView) -> TransactionResolution {
    if message.body().ends_with(b"commit") {
        TransactionResolution::COMMIT
    } else if message.body().ends_with(b"rollback") {
        TransactionResolution::ROLLBACK
    } else {
        TransactionResolution::UNKNOWN
    }
}

impl Desk {
    fn client(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(self.address.clone());
        option.set_enable_tls(false);
        option.set_long_polling_timeout(Duration::from_secs(5));
        option
    }

    async fn serve(&mut self, order: &Value) -> Said {
        match text(order, "do") {
            "producer" => {
                let topics = order["topics"].as_array().ok_or("topics")?;
                let mut option = ProducerOption::default();
                option.set_topics(topics.iter().filter_map(Value::as_str).collect());
                let mut one = Producer::new_transaction_producer(option, self.client(), Box::new(check))?;
                one.start().await?;
                self.producer = Some(one);
                Ok(json!({}))
            }
            "send" => {
                let producer = self.producer.as_ref().ok_or("no producer")?;
                let receipt = producer.send(builder(order).build()?).await?;
                Ok(json!({"id": receipt.message_id()}))
            }
            "transact" => {
                let producer = self.producer.as_ref().ok_or("no producer")?;
                let one = producer.send_transaction_message(builder(order).build()?).await?;
                let id = one.message_id().to_string();
                match text(order, "end") {
                    "commit" => one.commit().await?,
                    "rollback" => one.rollback().await?,
                    _ => (),
                }
                Ok(json!({"id": id}))
            }
            "simple" => {
                let (group, topic) = (text(order, "group"), text(order, "topic"));
                let mut option = SimpleConsumerOption::default();
                option.set_consumer_group(group);
                option.set_topics(vec![topic]);
                let mut one = SimpleConsumer::new(option, self.client())?;
                one.start().await?;
                self.simples
                    .insert(group.into(), (one, topic.into(), text(order, "tag").into()));
                Ok(json!({}))
            }
            "receive" => {
                let (one, topic, tag) = self.simples.get(text(order, "group")).ok_or("no consumer")?;
                let filter = FilterExpression::new(FilterType::Tag, tag.as_str());
                let received = one
                    .receive_with(topic, &filter, 16, Duration::from_secs(30))
                    .await?;
                let mut messages = vec![];
                for message in received {
                    one.ack(&message).await?;
                    messages.push(json!({
                        "id": message.message_id(), "body": String::from_utf8_lossy(message.body()),
                        "tag": message.tag().unwrap_or(""), "keys": message.keys(),
                        "property": message.properties().get("name").cloned().unwrap_or_default(),
                        "attempt": message.delivery_attempt(),
                    }));
                }
                Ok(json!({"messages": messages}))
            }
            other => Err(format!("no such order: {other}").into()),
        }
    }
}

#[tokio::main]
async fn main() {
    let mut desk = Desk {
        address: std::env::args().nth(1).expect("an address"),
        ..Desk::default()
    };
    for line in std::io::stdin().lock().lines() {
        let order: Value = serde_json::from_str(&line.expect("a line")).expect("an order");
        let said = match desk.serve(&order).await {
            Ok(said) => said,
            Err(error) => json!({"error": error.to_string()}),
        };
        println!("> {said}");
    }
    std::process::exit(0);
}
