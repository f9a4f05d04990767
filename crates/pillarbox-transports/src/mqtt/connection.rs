//! One connection to a broker, driven by a task that ends with it. A connection that broke is never mended: what it had not
//! sent is gone with it, so that nothing is sent behind the back of whoever was told that it was not delivered.

use std::sync::Arc;

use pillarbox_core::Undelivered;
use rumqttc::mqttbytes::Error as CodecError;
use rumqttc::mqttbytes::v5::{ConnectReturnCode, DisconnectReasonCode, Packet};
use rumqttc::{AsyncClient, ConnectionError, Event, EventLoop, MqttOptions, StateError};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::packet::PACKET_BYTES_MAX;
use crate::encryption;

/// Packets that wait for the task; what is in flight is bounded by the broker and by the options.
const QUEUE_MAX: usize = 64;

/// Packets that are written before the socket is flushed.
const WRITE_BATCH_MAX: usize = 64;

/// The code that says that a packet is too large; a PUBACK may not carry it, and some brokers send it there all the same.
const PACKET_TOO_LARGE: u8 = 0x95;

/// A connection that was accepted.
pub(super) struct Connection {
    pub(super) client: AsyncClient,
    /// The largest packet that the broker takes.
    pub(super) packet_bytes_max: usize,
    end: watch::Receiver<Option<End>>,
    task: AbortHandle,
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It broke, or was closed for a reason that has nothing to do with what was sent.
    Gone(String),
    /// The broker closed it over a packet that it did not want, and did not say which.
    Complaint(Complaint),
}

/// What a broker did not want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Complaint {
    /// A packet that is too large.
    TooLarge,
    /// A packet that it cannot read or will never take.
    Malformed(String),
    /// Anything else that may be about a packet.
    Other(String),
}

impl Connection {
    /// Connects, and answers once the broker has accepted us.
    pub(super) async fn open(mut options: MqttOptions, broker: &str) -> Result<Arc<Self>, Undelivered> {
        options.set_max_request_batch(WRITE_BATCH_MAX);
        let built = AsyncClient::builder(options).capacity(QUEUE_MAX).try_build();
        let (client, mut events) = built.map_err(|error| unavailable(broker, &error.to_string()))?;
        let accepted = loop {
            match events.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(accepted))) => break accepted,
                Ok(_) => {}
                Err(error) => return Err(unavailable(broker, &words(&error))),
            }
        };
        let properties = accepted.properties;
        if properties.as_ref().and_then(|properties| properties.max_qos) == Some(0) {
            return Err(unavailable(broker, "it acknowledges nothing, because its highest QoS is 0"));
        }
        let told = properties.and_then(|properties| properties.max_packet_size);
        let packet_bytes_max = told.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(PACKET_BYTES_MAX);
        tracing::debug!(broker, packet_bytes_max, "connected by MQTT");
        let (tell, end) = watch::channel(None);
        let task = tokio::spawn(drive(events, tell, broker.to_owned())).abort_handle();
        Ok(Arc::new(Self { client, packet_bytes_max, end, task }))
    }

    /// Why it is over, once it is.
    pub(super) fn end(&self) -> Option<End> {
        self.end.borrow().clone().or_else(|| self.task.is_finished().then(|| End::Gone("it was closed".to_owned())))
    }

    pub(super) fn is_over(&self) -> bool {
        self.end().is_some()
    }

    /// Waits until it is over.
    pub(super) async fn ended(&self) -> End {
        let mut end = self.end.clone();
        let told = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        told.unwrap_or_else(|| End::Gone("it was closed".to_owned()))
    }

    /// Ends it at once, with all that waits to be sent.
    pub(super) fn abort(&self) {
        self.task.abort();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.abort();
    }
}

pub(super) fn unavailable(broker: &str, what: &str) -> Undelivered {
    Undelivered::unavailable(format_args!("{broker}: {what}"))
}

/// Runs the connection to its end. Dropping the loop drops all that waits in it.
async fn drive(mut events: EventLoop, tell: watch::Sender<Option<End>>, broker: String) {
    let error = loop {
        if let Err(error) = events.poll().await {
            break error;
        }
    };
    tracing::debug!(broker, error = words(&error), "a connection by MQTT is over");
    drop(events);
    tell.send_replace(Some(end_of(&error)));
}

fn end_of(error: &ConnectionError) -> End {
    use DisconnectReasonCode as Code;
    let complaint = match error {
        ConnectionError::MqttState(StateError::Deserialization(CodecError::InvalidConnectReturnCode(code))) => {
            match *code {
                PACKET_TOO_LARGE => Complaint::TooLarge,
                code => Complaint::Other(format!("it answers with the unknown code {code:#04x}")),
            }
        }
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => match reason_code {
            Code::PacketTooLarge => Complaint::TooLarge,
            Code::MalformedPacket | Code::ProtocolError | Code::TopicNameInvalid | Code::PayloadFormatInvalid => {
                Complaint::Malformed(words(error))
            }
            Code::UnspecifiedError | Code::ImplementationSpecificError | Code::NotAuthorized => {
                Complaint::Other(words(error))
            }
            _ => return End::Gone(words(error)),
        },
        _ => return End::Gone(words(error)),
    };
    End::Complaint(complaint)
}

/// What happened, without anything that a packet held.
fn words(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ConnectionRefused(code)
        | ConnectionError::MqttState(StateError::ConnFail { reason: code }) => match code {
            ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized => {
                format!("it does not accept our user and password ({code:?})")
            }
            code => format!("it refuses the connection ({code:?})"),
        },
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => {
            format!("it closed the connection ({reason_code:?})")
        }
        ConnectionError::MqttState(StateError::Io(error)) | ConnectionError::Io(error) => error.to_string(),
        ConnectionError::Tls(error) => format!("no encrypted connection: {}", encryption::words(error)),
        ConnectionError::NotConnAck(_) => "it does not speak MQTT 5".to_owned(),
        ConnectionError::Timeout(_) => "it does not answer".to_owned(),
        ConnectionError::RequestsDone => "the connection was closed".to_owned(),
        error => error.to_string(),
    }
}
