//! What others do with the tables of PostgreSQL by plain SQL: other languages, a DBA with the printed script, rows by hand.

use std::time::Duration;

use pillarbox_core::admin::{Filter, Replay};
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::store::{Enqueue, OutboxStore, Settlement};
use pillarbox_core::{OutboxAdmin, SchemaAdmin, Settled, Verdict};
use pillarbox_testing::{Harness, run};

use crate::harness::{Direct, PostgresHarness, always_everything, claim, messages};

const HOUR: Duration = Duration::from_secs(3600);

/// OBX-095, OBX-101, OBX-105: another language takes part through functions alone.
#[test]
fn another_language_can_enqueue_and_work_through_functions() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let owner = "'11111111-1111-1111-1111-111111111111'";
        for topic in ["ack", "abandon", "fail", "crash"] {
            harness
                .run(&format!(
                    "SELECT {{schema}}.enqueue('{topic}', '{{}}', key => '{topic}', headers => '{{\"a\": \"b\"}}')"
                ))
                .await;
        }
        harness.run("SELECT {schema}.enqueue('later', '{}', delay => interval '1 hour')").await;
        let claimed = format!("SELECT count(*) FROM {{schema}}.claim({owner}, interval '1 hour', 10)");
        assert_eq!(harness.number(&claimed).await, 4);
        assert_eq!(harness.number(&claimed).await, 0);
        let ids = |topic: &str| format!("ARRAY(SELECT id FROM {{schema}}.outbox WHERE topic = '{topic}')");
        let call = async |call: String| harness.number(&format!("SELECT {{schema}}.{call}::bigint")).await;
        assert_eq!(call(format!("ack({owner}, {})", ids("ack"))).await, 1);
        assert_eq!(call(format!("ack({owner}, {})", ids("ack"))).await, 0);
        assert_eq!(call(format!("ack(gen_random_uuid(), {})", ids("fail"))).await, 0);
        assert_eq!(call(format!("abandon({owner}, {}, 'not now')", ids("abandon"))).await, 1);
        assert_eq!(call(format!("fail({owner}, {}, 'never')", ids("fail"))).await, 1);
        assert_eq!(call("reap()".into()).await, 0);
        harness.advance(HOUR + HOUR).await;
        assert_eq!(call("reap()".into()).await, 1);
        // What the functions wrote, the library reads.
        let mut topics: Vec<_> = harness
            .store()
            .claim(claim(10))
            .await
            .unwrap()
            .iter()
            .map(|claimed| (claimed.message.as_ref().unwrap().topic().to_owned(), claimed.attempts))
            .collect();
        topics.sort();
        assert_eq!(topics, [("abandon".to_owned(), 2), ("crash".to_owned(), 2), ("later".to_owned(), 1)]);
        let total = harness.store().overview().await.unwrap().total();
        assert_eq!((total.done, total.dead, total.processing), (1, 1, 3));
    });
}

/// A row that was inserted by hand under an id that is done, dead or waiting already moves on like any other.
#[test]
fn a_foreign_row_under_a_known_id_is_never_stuck() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let store = harness.store();
        let batch = messages(4);
        let verdicts = [
            Verdict::Ack,
            Verdict::Fail { reason: "no".into() },
            Verdict::Abandon { delay: HOUR, reason: "later".into() },
            Verdict::Release { delay: HOUR },
        ];
        for _ in 0..2 {
            for message in &batch {
                let id = message.id();
                harness
                    .run(&format!(
                        "INSERT INTO {{schema}}.outbox (message_id, topic, payload) VALUES ('{id}', 't', '')"
                    ))
                    .await;
            }
            let owned = claim(10);
            let claimed = store.claim(owned.clone()).await.unwrap();
            assert_eq!(claimed.len(), 4);
            let settlements: Vec<_> = claimed
                .iter()
                .zip(&verdicts)
                .map(|(claimed, verdict)| Settlement { held: claimed.held, verdict: verdict.clone() })
                .collect();
            assert_eq!(store.settle(owned.owner(), &settlements).await.unwrap(), [Settled::Applied; 4]);
        }
        // Two wait on the shelf; the same two inserted by hand are claimed with them, each once.
        for message in &batch[2..] {
            let id = message.id();
            harness
                .run(&format!("INSERT INTO {{schema}}.outbox (message_id, topic, payload) VALUES ('{id}', 't', '')"))
                .await;
        }
        harness.advance(HOUR + HOUR).await;
        assert_eq!(store.claim(claim(10)).await.unwrap().len(), 2);
        assert_eq!(store.replay(&Replay::dead(Filter::all(), 10)).await.unwrap().count, 1);
    });
}

/// OBX-091: what is printed for a DBA deploys the same tables.
#[test]
fn the_printed_script_deploys_what_the_program_expects() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let script = harness.store().schema_script();
        harness.run("DROP SCHEMA {schema} CASCADE").await;
        assert_eq!(harness.store().check_schema().await.unwrap(), SchemaStatus::Missing);
        harness.run(&script).await;
        assert!(matches!(harness.store().check_schema().await.unwrap(), SchemaStatus::Current(_)));
        harness.store().enqueue(Enqueue::pending(&messages(1))).await.unwrap();
    });
}
