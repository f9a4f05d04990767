//! Routes that are paused, by an operator or by the instances that run them, as `status`, `top` and `pause` show them.

use std::time::Duration;

use pillarbox::instance::{InstanceRecord, STALE_AFTER_DEFAULT};
use pillarbox::pause::{Halt, PauseRecord};
use pillarbox::schema::SchemaStatus;
use pillarbox::{OutboxStore, SchemaAdmin, StoreError};
use serde_json::{Value, json};

use crate::output::{age, escaped, instant};

/// What is paused in one queue.
#[derive(Default)]
pub(crate) struct Paused {
    pub(crate) by_operator: Vec<PauseRecord>,
    pub(crate) by_instance: Vec<(InstanceRecord, Halt)>,
}

impl Paused {
    /// Looks; without the tables nobody has paused anything.
    pub(crate) async fn of(queue: &dyn OutboxStore) -> Result<Self, StoreError> {
        let by_operator = match queue.pauses() {
            Some(list) if is_there(&*list).await? => list.paused().await?,
            _ => Vec::new(),
        };
        let told = |record: InstanceRecord| record.instance.halts().into_iter().map(move |halt| (record.clone(), halt));
        let by_instance = live(queue).await?.unwrap_or_default().into_iter().flat_map(told).collect();
        Ok(Self { by_operator, by_instance })
    }

    /// A line for each, of what is known now.
    pub(crate) fn lines(&self) -> Vec<String> {
        let by_operator = self.by_operator.iter().map(|record| {
            format!("route {}: paused {} ago{}", escaped(record.pause.route()), age(record.lasts), by_whom(record))
        });
        let by_instance = self.by_instance.iter().map(|(record, halt)| {
            let (lasts, probe) = (age(halt.lasts + record.silent_for), probe_in(record, halt));
            let instance = &record.instance;
            let (service, host) = (escaped(instance.service()), escaped(instance.host()));
            let probe =
                if probe.is_zero() { "is tried now".to_owned() } else { format!("next probe in {}", age(probe)) };
            format!(
                "route {}: paused {lasts} ago, {}; {probe} ({service} on {host}, pid {})",
                escaped(&halt.route),
                escaped(&halt.reason),
                instance.pid()
            )
        });
        by_operator.chain(by_instance).collect()
    }

    pub(crate) fn as_json(&self) -> Value {
        let by_operator = self.by_operator.iter().map(|record| {
            let mut entry = as_json(record);
            entry["paused_by"] = "operator".into();
            entry
        });
        let by_instance = self.by_instance.iter().map(|(record, halt)| {
            json!({
                "route": halt.route,
                "paused_by": "instance",
                "paused_seconds": (halt.lasts + record.silent_for).as_secs(),
                "reason": halt.reason,
                "next_probe_seconds": probe_in(record, halt).as_secs(),
                "instance": record.instance.id().to_string(),
                "host": record.instance.host(),
                "pid": record.instance.pid(),
            })
        });
        by_operator.chain(by_instance).collect()
    }
}

/// One pause by an operator.
pub(crate) fn as_json(record: &PauseRecord) -> Value {
    json!({
        "route": record.pause.route(),
        "since": instant(record.since),
        "paused_seconds": record.lasts.as_secs(),
        "reason": record.pause.get_reason(),
        "by": record.pause.get_by(),
    })
}

/// ` by ann@host: partner is down`, as far as it was said.
pub(crate) fn by_whom(record: &PauseRecord) -> String {
    let by = record.pause.get_by().map(|by| format!(" by {}", escaped(by))).unwrap_or_default();
    let reason = record.pause.get_reason().map(|reason| format!(": {}", escaped(reason))).unwrap_or_default();
    by + &reason
}

/// Which routes the running instances have; none when not all of them tell.
pub(crate) async fn routes(queue: &dyn OutboxStore) -> Result<Option<Vec<String>>, StoreError> {
    let Some(live) = live(queue).await?.filter(|live| !live.is_empty()) else { return Ok(None) };
    let told: Option<Vec<Vec<String>>> = live.iter().map(|record| record.instance.routes()).collect();
    Ok(told.map(|told| {
        let mut routes = told.concat();
        routes.sort_unstable();
        routes.dedup();
        routes
    }))
}

/// The instances that run; none where nobody keeps a list.
async fn live(queue: &dyn OutboxStore) -> Result<Option<Vec<InstanceRecord>>, StoreError> {
    match queue.instances() {
        Some(list) if is_there(&*list).await? => Ok(Some(list.live(STALE_AFTER_DEFAULT).await?)),
        _ => Ok(None),
    }
}

async fn is_there<T: SchemaAdmin + ?Sized>(list: &T) -> Result<bool, StoreError> {
    Ok(matches!(list.check_schema().await?, SchemaStatus::Current(_)))
}

fn probe_in(record: &InstanceRecord, halt: &Halt) -> Duration {
    halt.probe_in.saturating_sub(record.silent_for)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use pillarbox::{Instance, Pause};

    use super::*;

    /// WRK-08, H62: who paused what, since when and why, and nothing of it steers the terminal.
    #[test]
    fn every_pause_is_told_with_its_reason() {
        let (minutes, seconds) = (Duration::from_secs(14 * 60), Duration::from_secs);
        let record = |pause| PauseRecord { pause, since: SystemTime::UNIX_EPOCH, lasts: minutes };
        let halt = Halt { route: "order.*".into(), lasts: minutes, probe_in: seconds(15), reason: "refused\n".into() };
        let instance = InstanceRecord {
            instance: Instance::new("relay", "host-1", 7),
            started_at: SystemTime::UNIX_EPOCH,
            last_seen_at: SystemTime::UNIX_EPOCH,
            silent_for: seconds(3),
        };
        let paused = Paused {
            by_operator: vec![
                record(Pause::new("orders").reason("partner\u{1b} is down").by("ann@host")),
                record(Pause::new("plain")),
            ],
            by_instance: vec![(instance, halt)],
        };
        let expected = [
            "route orders: paused 14 min 0 s ago by ann@host: partner\\u{1b} is down",
            "route plain: paused 14 min 0 s ago",
            "route order.*: paused 14 min 3 s ago, refused\\n; next probe in 12 s (relay on host-1, pid 7)",
        ];
        assert_eq!(paused.lines(), expected);
        let json = paused.as_json();
        assert_eq!((&json[0]["paused_by"], &json[0]["by"]), (&"operator".into(), &"ann@host".into()));
        assert_eq!((&json[2]["paused_by"], &json[2]["next_probe_seconds"]), (&"instance".into(), &12.into()));
    }
}
