//! Whether streams take what is sent, keep it, and know it again.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::GetStreamByNameErrorKind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use pillarbox_core::Checkup;
use pillarbox_core::diagnosis::Finding;
use pillarbox_core::template::Template;

/// Looks for a stream for each destination, and at each of these streams once.
pub(super) async fn streams(context: &Context, checkup: &Checkup) -> Vec<Finding> {
    let (mut findings, mut seen) = (Vec::new(), BTreeSet::new());
    for subject in checkup.destinations.iter().map(subject_of).collect::<BTreeSet<_>>() {
        let name = match context.stream_by_subject(subject.as_str()).await {
            Ok(name) => name,
            Err(error) => {
                findings.push(missing(&subject, error.kind(), &error));
                continue;
            }
        };
        findings.push(Finding::fine("stream", format!("{name} takes `{subject}`")));
        if seen.insert(name.clone()) {
            match context.get_stream(&name).await {
                Ok(stream) => findings.extend(judge(&stream.cached_info().config, checkup.lease)),
                Err(error) => findings.push(Finding::unknown("stream", format!("{name} cannot be looked at: {error}"))),
            }
        }
    }
    findings
}

/// What is sent there, with `>` for all that follows when it depends on the message.
fn subject_of(destination: &Template) -> String {
    match destination.constant() {
        Some(subject) => subject.to_owned(),
        None => {
            let head = destination.head();
            format!("{}>", head.rfind('.').map_or("", |dot| &head[..=dot]))
        }
    }
}

fn missing(subject: &str, kind: GetStreamByNameErrorKind, error: &dyn std::error::Error) -> Finding {
    if kind != GetStreamByNameErrorKind::NotFound {
        return Finding::unknown("stream", format!("whether one takes `{subject}` cannot be asked: {error}"));
    }
    let fix = format!("make one: `nats stream add ORDERS --subjects '{subject}'`, or correct the destination");
    Finding::critical("stream", format!("none takes `{subject}`: its messages are refused"), fix)
}

fn judge(config: &Config, lease: Duration) -> Vec<Finding> {
    let (name, least) = (&config.name, lease.saturating_mul(2));
    let mut findings = Vec::new();
    if config.no_ack {
        let what = format!("{name} acknowledges nothing: no message ever counts as delivered");
        findings.push(Finding::critical("acknowledgements", what, "make it anew without `--no-ack`"));
    }
    if config.storage == StorageType::Memory {
        let what = format!("{name} lives in memory: it is gone when its server ends");
        findings.push(Finding::critical("storage", what, "make it anew with `--storage file`"));
    }
    let window = config.duplicate_window;
    findings.push(if window >= least {
        Finding::fine("duplicates", format!("{name} knows a message again for {}", time(window)))
    } else {
        let what = format!(
            "{name} knows a message again for {}, and one whose relay died comes again after {}",
            time(window),
            time(lease)
        );
        let fix = format!("`nats stream edit {name} --dupe-window {}`, or give the relay a shorter lease", time(least));
        Finding::warning("duplicates", what, fix)
    });
    let has_limit = config.max_messages > 0 || config.max_bytes > 0;
    if has_limit && config.discard == DiscardPolicy::Old {
        let what = format!("{name} drops its oldest messages when it is full, whether anybody has read them or not");
        let fix = format!("`nats stream edit {name} --discard new`: what does not fit then waits in the outbox");
        findings.push(Finding::warning("limits", what, fix));
    }
    findings
}

/// As the tools of NATS take it.
fn time(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{}ms", time.as_millis()),
        seconds if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_core::diagnosis::Health;

    use super::*;

    #[test]
    fn what_depends_on_the_message_is_a_wildcard() {
        let table = [("orders", "orders"), ("shop.{topic}", "shop.>"), ("shop.a-{key}.x", "shop.>"), ("{topic}", ">")];
        for (destination, subject) in table {
            assert_eq!(subject_of(&destination.parse().unwrap()), subject);
        }
    }

    #[test]
    fn a_stream_that_forgets_is_found() {
        let good = Config { name: "S".into(), duplicate_window: Duration::from_secs(120), ..Config::default() };
        let lease = Duration::from_secs(60);
        let worst = |config: &Config| judge(config, lease).iter().map(|finding| finding.health).max();
        assert_eq!(worst(&good), Some(Health::Fine));
        let short = Config { duplicate_window: Duration::from_secs(119), ..good.clone() };
        let findings = judge(&short, lease);
        assert_eq!(findings[0].fix.as_deref().map(|fix| fix.contains("--dupe-window 2m")), Some(true), "{findings:?}");
        let full = Config { max_messages: 1, ..good.clone() };
        assert_eq!(worst(&full), Some(Health::Warning));
        assert_eq!(worst(&Config { discard: DiscardPolicy::New, ..full }), Some(Health::Fine));
        assert_eq!(worst(&Config { storage: StorageType::Memory, ..good.clone() }), Some(Health::Critical));
        assert_eq!(worst(&Config { no_ack: true, ..good }), Some(Health::Critical));
    }
}
