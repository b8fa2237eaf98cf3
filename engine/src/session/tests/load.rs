//! Tests of the cost of many threads: counted operations, no timing.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Lab, Status, calls, permit, reply_text};
use crate::engine::Engine;
use crate::store::GroupCommit;

const LEAD: &str = "<permissions><execute><directive>test.*</directive></execute></permissions>";

fn leads(children: usize) -> Lab {
    let lab = Lab::new(move |request| {
        let start = ("rye_execute", json!({"item_type": "directive", "item_id": "test/child", "async": true}));
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&vec![start; children]),
            (who, _) => reply_text(who),
        })
    });
    lab.write(".ai/config/agent/resilience.yaml", "concurrency: { max_concurrent_children: 100 }\n");
    lab.directive("parent", &format!("<limits spend=\"50\" spawns=\"2000\"/>{LEAD}"), "");
    lab.directive("child", "<limits spend=\"0.02\"/>", "");
    lab
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_children_take_few_commits() {
    let mut lab = leads(20);
    // Replies arrive together, and each commit waits for late commits. A busy machine therefore makes the run longer,
    // but does not change the counts.
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(100);
    let mut options = lab.options();
    options.group_commit = GroupCommit { next: Duration::from_secs(2), longest: Duration::from_secs(20) };
    let engine = Engine::open(&lab.path(), options).unwrap();
    let before = engine.commits();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed);
    engine.wait_idle().await;
    assert!(engine.commits() - before <= 8, "{} commits", engine.commits() - before);
    let rows = engine.threads().list().unwrap();
    assert!(rows.len() == 21 && rows.iter().all(|listed| listed.row.status == Status::Completed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_thread_keeps_its_cost_per_turn() {
    let lab = Lab::new(|request| {
        let turn = request.cue.turn.unwrap();
        let read = calls(&[("rye_file_system_read", json!({"path": "a.txt", "offset": 1}))]);
        Ok(if turn < 120 { read } else { reply_text("done") })
    });
    lab.write("a.txt", "a\n");
    let limits = "<limits turns=\"200\" tokens=\"100000000\" spend=\"50\" duration_seconds=\"3600\"/>";
    lab.directive("long", &format!("{limits}{}", permit(&["rye.file-system.read"])), "");
    let engine = lab.engine();
    let (commits, disk) = (engine.commits(), engine.disk().counters());
    let result = lab.run(&engine, "long").await;
    assert_eq!((result.status, result.cost.turns), (Status::Completed, 121));
    let used = engine.disk().counters().since(&disk);
    assert!(engine.commits() - commits <= 121 + 4, "{}", engine.commits() - commits);
    assert!(used.syncs <= 2 * 121 + 4, "{used:?}");
}
