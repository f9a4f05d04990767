//! What a stream still has.

use std::collections::HashSet;
use std::error::Error;
use std::time::{Duration, SystemTime};

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::context::GetStreamByNameErrorKind;
use async_nats::jetstream::stream::{Config, Info, RetentionPolicy};
use futures_util::StreamExt;
use pillarbox_core::{Recall, Recalled};
use tokio::time::timeout;

use super::MESSAGE_ID;

/// Reads the headers of everything that came to a subject in that time. A stream that is gone has nothing.
pub(super) async fn recall(
    context: &Context,
    recall: &Recall<'_>,
    patience: Duration,
) -> Result<Recalled, Box<dyn Error + Send + Sync>> {
    let name = match timeout(patience, context.stream_by_subject(recall.destination)).await? {
        Ok(name) => name,
        Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => {
            return Ok(Recalled::Found { ids: HashSet::new(), since: None });
        }
        Err(error) => return Err(error.into()),
    };
    let stream = timeout(patience, context.get_stream(&name)).await??;
    let info = stream.cached_info();
    if info.config.retention != RetentionPolicy::Limits {
        return Ok(Recalled::unreadable(format!("the stream {name} removes what was read")));
    }
    let mut found = HashSet::new();
    let config = OrderedConfig {
        filter_subject: recall.destination.to_owned(),
        headers_only: true,
        deliver_policy: DeliverPolicy::ByStartTime { start_time: recall.from.into() },
        ..OrderedConfig::default()
    };
    let consumer = timeout(patience, stream.create_consumer(config)).await??;
    let mut left = consumer.cached_info().num_pending;
    let mut messages = timeout(patience, consumer.messages()).await??;
    while left > 0 && found.len() < recall.wanted.len() {
        let Some(message) = timeout(patience, messages.next()).await? else { break };
        let message = message?;
        let info = message.info()?;
        if SystemTime::from(info.published) > recall.until {
            break;
        }
        left = info.pending;
        let id = message.headers.as_ref().and_then(|headers| headers.get(MESSAGE_ID));
        found.extend(id.and_then(|id| recall.wanted(before_replay(id.as_str()))));
    }
    Ok(Recalled::Found { ids: found, since: since(info, recall.until) })
}

/// The id itself, without the count of its replays.
fn before_replay(id: &str) -> &str {
    id.split_once('/').map_or(id, |(id, _)| id)
}

/// A stream with limits drops what is oldest, and as a whole when it is empty.
fn since(info: &Info, end: SystemTime) -> Option<SystemTime> {
    let Config { max_messages, max_bytes, max_messages_per_subject, max_age, .. } = &info.config;
    let has_limit = [*max_messages, *max_bytes, *max_messages_per_subject].iter().any(|limit| *limit > 0);
    (has_limit || !max_age.is_zero()).then(|| match info.state.messages {
        0 => end,
        _ => info.state.first_timestamp.into(),
    })
}
