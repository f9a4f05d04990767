//! What a stream still has.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pillarbox_core::wire;
use pillarbox_core::{Recall, Recalled};
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use tokio::time::timeout;

use super::subscription::{Entry, entries};

/// Entries that are read at once.
const PAGE: usize = 500;

/// Reads everything that came to a stream in that time. `is_trimmed` says that older entries are removed for new ones.
pub(super) async fn recall(
    connection: &mut MultiplexedConnection,
    recall: &Recall<'_>,
    is_trimmed: bool,
    patience: Duration,
) -> Result<Recalled, String> {
    let (mut start, end) = (millis(recall.from).to_string(), millis(recall.until).to_string());
    let mut ids = HashSet::new();
    loop {
        let page = range(connection, recall.destination, [&start, &end], PAGE, patience).await?;
        let is_last = page.len() < PAGE;
        for (id, fields) in page {
            // What follows it.
            start = format!("({id}");
            let sent = fields.iter().find(|(name, _)| name == wire::ID.as_bytes());
            ids.extend(sent.and_then(|(_, id)| recall.wanted(std::str::from_utf8(id).ok()?)));
        }
        if is_last || ids.len() == recall.wanted.len() {
            break;
        }
    }
    let since = match is_trimmed {
        true => {
            let first = range(connection, recall.destination, ["-", "+"], 1, patience).await?;
            Some(first.first().and_then(|(id, _)| moment(id)).unwrap_or(recall.until))
        }
        false => None,
    };
    Ok(Recalled::Found { ids, since })
}

async fn range(
    connection: &mut MultiplexedConnection,
    stream: &str,
    [start, end]: [&str; 2],
    count: usize,
    patience: Duration,
) -> Result<Vec<Entry>, String> {
    let mut range = cmd("XRANGE");
    range.arg(stream).arg(start).arg(end).arg("COUNT").arg(count);
    match timeout(patience, range.query_async::<Value>(connection)).await {
        Ok(page) => page.map(entries).map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {patience:?}")),
    }
}

/// The time in an entry's id.
fn moment(id: &str) -> Option<SystemTime> {
    let millis = id.split('-').next()?.parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

fn millis(at: SystemTime) -> u128 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entrys_id_has_its_time() {
        let at = |millis| Some(UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!([moment("1700000000123-4"), moment("7")], [at(1_700_000_000_123), at(7)]);
        assert_eq!([moment(""), moment("x-1"), moment("-1")], [None; 3]);
    }
}
