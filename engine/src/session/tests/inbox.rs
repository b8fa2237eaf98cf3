//! Messages of other processes: delivered when they arrive, without polling.

use std::sync::Arc;
use std::time::Duration;

use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::plan::PlanMode;
use rye_grammar::ItemId;

use super::{Lab, reply_text};
use crate::context::{StartOptions, ThreadHandle};
use crate::engine::Engine;
use crate::event::{ControlMessage, Delivery};
use crate::store::disk::SimulatedDisk;
use crate::store::{Disk, RealDisk, layout, mailbox};
use crate::thread::Status;

async fn idle_chat(lab: &Lab, disk: &Arc<dyn Disk>) -> (Engine, ThreadHandle) {
    lab.directive("talk", "<limits turns=\"4\" spend=\"1.00\"/>", "");
    let world = (lab.options().world)().unwrap();
    let mut request = CompileRequest::new(ItemId::parse("test/talk").unwrap()).with_inputs(serde_json::Map::new());
    request.mode = PlanMode::Chat;
    let plan = compile(&*world, &request).value.unwrap();
    let mut options = lab.options();
    options.disk = Some(Arc::clone(disk));
    let engine = Engine::open(&lab.path(), options).unwrap();
    let handle = engine.start(&plan, StartOptions::default()).await.unwrap();
    handle.control().started_state().await;
    (engine, handle)
}

fn send(disk: &Arc<dyn Disk>, handle: &ThreadHandle, message: ControlMessage) -> String {
    mailbox::send(&**disk, &handle.thread_id, &serde_json::to_value(message).unwrap(), 0).unwrap()
}

fn prompt(text: &str) -> ControlMessage {
    ControlMessage::Submit { input: text.into(), delivery: Delivery::Prompt }
}

#[tokio::test]
async fn idle_session_lists_no_folder_and_receives_each_message() {
    let lab = Lab::new(|_| Ok(reply_text("done")));
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&lab.path()).unwrap());
    let (_engine, handle) = idle_chat(&lab, &disk).await;
    // The first message creates the inbox.
    for text in ["one", "two", "three"] {
        let id = send(&disk, &handle, prompt(text));
        handle.control().settled(&id).await;
    }
    // Two polls fit into this time.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let before = disk.counters();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(disk.counters().since(&before).lists, 0);
    // A removed inbox is created again by the next message.
    std::fs::remove_dir_all(lab.path().join(layout::inbox(&handle.thread_id))).unwrap();
    let id = send(&disk, &handle, prompt("four"));
    handle.control().settled(&id).await;
    send(&disk, &handle, ControlMessage::Close);
    assert_eq!(handle.join().await.status, Status::Idle);
    assert_eq!(lab.model.requests.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn session_on_a_disk_without_notifications_receives_messages() {
    let lab = Lab::new(|_| Ok(reply_text("done")));
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let (_engine, handle) = idle_chat(&lab, &disk).await;
    let id = send(&disk, &handle, prompt("one"));
    handle.control().settled(&id).await;
    send(&disk, &handle, ControlMessage::Close);
    assert_eq!(handle.join().await.status, Status::Idle);
}
