//! The highest rate at which the backlog does not grow.

use serde_json::json;

use super::task::Turn;

const WRITERS: u64 = 16;

/// Where the search begins when nothing is known: most are faster.
const FIRST: f64 = 1000.0;

/// How near the search comes.
const NEAR: f64 = 1.06;

/// Tries of a whole run before a contestant counts as one that keeps up no rate.
const TRIES: usize = 6;

/// A backlog of so many seconds is one that waits for its turn; a longer one is one that grows.
const WAITING: f64 = 0.5;

/// Searches in short runs the first time, then runs for the whole time at the rate that was found: somewhat higher when the
/// last one was kept up, lower until it is.
pub(crate) async fn measure(turn: &mut Turn<'_>, is_held: bool) -> Result<f64, String> {
    let mut rate = match turn.memory.rate {
        Some(rate) => rate * NEAR,
        None => search(turn).await?,
    };
    for _ in 0..TRIES {
        turn.clear().await?;
        turn.server.settle_down(turn.name).await;
        let holder = if is_held { Some(turn.server.hold(turn.name).await) } else { None };
        let kept = keeps(turn, rate, turn.scale.steady_seconds).await?;
        drop(holder);
        if let Some(written) = kept {
            turn.memory.rate = Some(rate);
            return Ok(written);
        }
        rate /= NEAR * NEAR;
    }
    turn.memory.rate = Some(rate);
    Err(format!("a backlog grows at {rate:.0}/s already"))
}

async fn search(turn: &mut Turn<'_>) -> Result<f64, String> {
    let seconds = turn.scale.probe_seconds;
    let (mut low, mut high) = (0.0, FIRST);
    while probe(turn, high, seconds).await? {
        (low, high) = (high, high * 2.0);
    }
    while low == 0.0 || high / low > NEAR {
        let middle = if low == 0.0 { high / 2.0 } else { f64::sqrt(low * high) };
        if middle < 10.0 {
            return Err("keeps up no rate at all".into());
        }
        if probe(turn, middle, seconds).await? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

async fn probe(turn: &mut Turn<'_>, rate: f64, seconds: f64) -> Result<bool, String> {
    turn.clear().await?;
    Ok(keeps(turn, rate, seconds).await?.is_some())
}

/// Messages per second that were written, when the writers kept the pace and the workers kept up with them.
async fn keeps(turn: &mut Turn<'_>, rate: f64, seconds: f64) -> Result<Option<f64>, String> {
    let command = json!({ "do": "steady", "rate": rate.round(), "seconds": seconds, "writers": WRITERS });
    let answer = turn.entrant.ask(&command).await?;
    let figure = |name: &str| answer[name].as_f64().ok_or_else(|| format!("its answer has no {name}"));
    let (written, backlog) = (figure("written")?, figure("backlog")?);
    let is_kept = written >= 0.98 * rate * seconds - 1.0 && backlog <= rate * WAITING;
    eprintln!("  {}: {rate:.0}/s for {seconds} s: {written} written, {backlog} left", turn.name);
    Ok(is_kept.then_some(written / seconds))
}
