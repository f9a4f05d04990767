//! The statements, rendered once for the configured names, and the literals that are put into them.
//!
//! Only numbers and hexadecimal digits are ever written into a statement; everything that a user chose is bound.

use std::fmt::Write as _;

use pillarbox_core::OwnerToken;
use pillarbox_core::admin::Ended;
use pillarbox_core::lease::Held;
use pillarbox_core::naming::Naming;

/// Ids in one list. MariaDB turns longer lists into a subquery, which locks the whole table in an UPDATE or DELETE.
pub(crate) const LIST_MAX: usize = 900;

pub(crate) const OWNER: &str = "x'00000000000000000000000000000000' /*owner*/";

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Every statement of the backend with the names of one store.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: String,)*
        }

        impl Statements {
            pub(crate) fn new(naming: &Naming) -> Self {
                Self {
                    $($name: statement(naming, include_str!(concat!("../sql/outbox_", stringify!($name), ".sql"))),)*
                }
            }
        }
    };
}

statements!(
    begin,
    blocked_keys,
    claim,
    clock,
    delete,
    diagnose,
    enqueue,
    enqueue_delayed,
    enqueue_guard,
    enqueue_known,
    enqueue_lane,
    enqueue_lease,
    enqueue_many,
    enqueue_moved,
    enqueue_one,
    enqueue_new,
    enqueue_new_lane,
    enqueue_stray,
    enqueue_undo,
    exchange,
    find_dead,
    get,
    get_shelf,
    group_dead,
    leases,
    list_live,
    list_shelf,
    lock_dead,
    purge,
    reap,
    renew,
    replay,
    replay_lane,
    settle,
    settle_delete,
    settle_done,
    settle_receipt,
    settle_rows,
    settle_rows_part,
    settle_stretch,
    tally,
    top,
    topics,
);

macro_rules! statements_beside {
    ($(#[$doc:meta])* $type:ident, $noun:literal: $($name:ident),* $(,)?) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $type {
            $(pub(crate) $name: String,)*
        }

        impl $type {
            pub(crate) fn new(naming: &Naming) -> Self {
                Self {
                    $($name: statement(
                        naming,
                        include_str!(concat!("../sql/", $noun, "_", stringify!($name), ".sql")),
                    ),)*
                }
            }
        }
    };
}

statements_beside!(
    /// The statements of the list of instances.
    InstanceStatements, "instance": heartbeat, leave, live, forget,
);

statements_beside!(
    /// The statements of the list of paused routes.
    PauseStatements, "pause": add, end, find, list,
);

statements_beside!(
    /// The statements of the progress of receptors and perspectives.
    ProgressStatements, "progress":
    record_receptors,
    record_checkpoints,
    changed_receptors,
    changed_checkpoints,
    receptors_of,
    checkpoint,
    purge,
    purge_look,
);

statements_beside!(
    /// The statements of an inbox's ledger; those of its queue are the outbox's.
    InboxStatements, "inbox":
    see,
    register,
    register_new,
    find,
    mismatches,
    hold_live,
    hold_shelf,
    leave_live,
    leave_shelf,
    bury_live,
    bury,
    bury_lane,
    release,
    set,
    queue,
    revise,
    purge,
);

/// Puts the configured names in the place of the default ones, in one pass, so that a name may contain a default one.
pub(crate) fn with_names(naming: &Naming, sql: &str) -> String {
    let names = [
        ("pillarbox_schema_version", format!("{}_schema_version", naming.schema())),
        ("pillarbox_outbox", naming.joined()),
        ("pillarbox_inbox", naming.joined()),
    ];
    let mut rendered = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find("pillarbox_") {
        rendered.push_str(&rest[..at]);
        rest = &rest[at..];
        let (default, configured) = names
            .iter()
            .find(|(default, _)| rest.starts_with(default))
            .map_or(("pillarbox_", "pillarbox_"), |(default, configured)| (*default, configured.as_str()));
        rendered.push_str(configured);
        rest = &rest[default.len()..];
    }
    rendered.push_str(rest);
    rendered
}

/// A statement without its head comment, which the server need not parse each time.
fn statement(naming: &Naming, file: &str) -> String {
    let body: Vec<&str> = file.lines().filter(|line| !line.starts_with("--")).collect();
    with_names(naming, body.join("\n").trim())
}

/// Replaces `0 /*name*/` (or another number) by a number.
pub(crate) fn with_number(sql: &str, marker: &str, number: i64) -> String {
    with_literal(sql, marker, &number.to_string())
}

/// Puts the state of messages that ended so in the place of `'dead'`.
pub(crate) fn of_end(sql: &str, ended: Ended) -> String {
    with_literal(sql, "'dead'", &format!("'{}'", ended.state().as_str()))
}

/// Replaces `0 /*ids*/` by a list of row ids.
pub(crate) fn with_ids(sql: &str, ids: impl IntoIterator<Item = i64>) -> String {
    with_literal(sql, "0 /*ids*/", &list(ids))
}

/// Replaces `0 /*messages*/` by a list of message ids.
pub(crate) fn with_messages(sql: &str, ids: impl IntoIterator<Item = uuid::Uuid>) -> String {
    let mut text = String::new();
    for id in ids {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}x'{}'", id.simple());
    }
    with_literal(sql, "0 /*messages*/", &text)
}

/// Replaces the owner's marker.
pub(crate) fn with_owner(sql: &str, owner: OwnerToken) -> String {
    with_literal(sql, OWNER, &format!("x'{}'", owner.as_uuid().simple()))
}

/// The guard: exactly these rows `l` under exactly these claims of the owner.
pub(crate) fn guarded(sql: &str, owner: OwnerToken, held: &[Held]) -> String {
    let sql = with_owner(&with_ids(sql, held.iter().map(|held| held.work_id.as_i64())), owner);
    let fence = held.first().map_or(0, |held| held.fence.as_i64());
    let guard = if held.iter().all(|held| held.fence.as_i64() == fence) {
        format!("l.`fence` = {fence}")
    } else {
        let mut pairs = String::from("(l.`id`, l.`fence`) IN (");
        for (index, held) in held.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(pairs, "{comma}({},{})", held.work_id, held.fence);
        }
        pairs + ")"
    };
    with_literal(&sql, "0 /*fences*/", &guard)
}

/// Replaces a marker by text that we made ourselves.
pub(crate) fn with_literal(sql: &str, marker: &str, literal: &str) -> String {
    debug_assert!(sql.contains(marker), "{marker} is missing in {sql}");
    sql.replace(marker, literal)
}

/// Bytes as a literal.
pub(crate) fn binary(bytes: &[u8]) -> String {
    format!("x'{}'", hexadecimal(bytes))
}

/// Bytes as digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = String::with_capacity(2 * bytes.len());
    digits.extend(
        bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])),
    );
    digits
}

/// Numbers, separated by commas.
pub(crate) fn list(numbers: impl IntoIterator<Item = i64>) -> String {
    let mut text = String::new();
    for number in numbers {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{number}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillarbox_core::{Fence, WorkId};

    fn held(id: i64, fence: i64) -> Held {
        Held { work_id: WorkId::from_i64(id), fence: Fence::from_i64(fence) }
    }

    #[test]
    fn names_are_replaced_in_one_pass() {
        let naming = Naming::new("pillarbox_outbox", "current").unwrap();
        let sql = "`pillarbox_outbox` `pillarbox_outbox_shelf` `pillarbox_schema_version` `pillarbox_outbox_claim`";
        assert_eq!(
            with_names(&naming, sql),
            "`pillarbox_outbox_current` `pillarbox_outbox_current_shelf` `pillarbox_outbox_schema_version` \
             `pillarbox_outbox_current_claim`"
        );
        assert_eq!(with_names(&Naming::default(), sql), sql);
    }

    /// H53: every identifier comes from the configuration, checked and quoted.
    #[test]
    fn no_statement_keeps_a_default_name() {
        let naming = Naming::new("s", "t").unwrap();
        let beside =
            (InboxStatements::new(&naming), InstanceStatements::new(&naming), ProgressStatements::new(&naming));
        let all = format!("{:?} {beside:?}", Statements::new(&naming));
        // Messages carry this name, whatever tables are called.
        assert!(!all.replace(pillarbox_core::wire::REPLAY, "").contains("pillarbox"));
    }

    #[test]
    fn the_guard_names_each_claim() {
        let owner = OwnerToken::new();
        let sql =
            "`id` IN (0 /*ids*/) AND `owner_token` = x'00000000000000000000000000000000' /*owner*/ AND (0 /*fences*/)";
        let one = guarded(sql, owner, &[held(1, 7), held(2, 7)]);
        assert!(one.starts_with("`id` IN (1,2) AND") && one.ends_with("AND (l.`fence` = 7)"), "{one}");
        let two = guarded(sql, owner, &[held(1, 7), held(2, 8)]);
        assert!(two.ends_with("AND ((l.`id`, l.`fence`) IN ((1,7),(2,8)))"), "{two}");
    }
}
