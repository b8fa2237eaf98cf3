//! Approval of calls and limits: asks at the terminal, or applies the policy for runs without a terminal, which may
//! leave the thread in the queue of `rye threads approvals`. An approval can be remembered for a thread or for the
//! project, never globally.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use clap::ValueEnum;
use rye_compiler::approvals::{ApprovalRequired, HeadlessPolicy, is_preapproved};
use rye_compiler::item::Items;
use rye_compiler::plan::ApprovalOrigin;
use rye_engine::disk_world::DiskWorld;
use rye_engine::engine::{ApprovalHandler, ApprovalPolicy};
use rye_engine::event::Approval;
use rye_engine::provider::BoxFuture;
use rye_engine::thread_id::ThreadId;
use rye_engine::trust::Trust;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::args::Format;
use crate::report::printable;
use crate::workspace::Spaces;

/// Policy for calls that need approval when there is no terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeadlessPolicyArg {
    /// Allow the call
    Allow,
    /// Suspend the thread before the call until `rye threads approve`
    Queue,
    /// Refuse the call and continue the thread
    Deny,
}

impl From<HeadlessPolicyArg> for HeadlessPolicy {
    fn from(way: HeadlessPolicyArg) -> Self {
        match way {
            HeadlessPolicyArg::Allow => Self::Allow,
            HeadlessPolicyArg::Queue => Self::Queue,
            HeadlessPolicyArg::Deny => Self::Deny,
        }
    }
}

/// Returns true if the user can be asked at this terminal.
pub fn has_terminal(format: Format) -> bool {
    format == Format::Human && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Formats the warning about grants that need approval and are not acknowledged, for a run without a terminal; `None`
/// if there are none.
pub fn headless_warning(asked: &[ApprovalRequired], unattended: HeadlessPolicy) -> Option<String> {
    let grants: Vec<String> = asked
        .iter()
        .filter(|grant| !grant.vouched)
        .map(|grant| format!("`{}` ({})", grant.pattern, grant.tier))
        .collect();
    let otherwise = "change this with `--unattended` or `approvals.unattended`, or add `<acknowledge>`";
    (!grants.is_empty()).then(|| {
        let told = unattended.describe();
        format!("no terminal for approvals; unacknowledged calls ({told}): {}; {otherwise}", grants.join(", "))
    })
}

/// Returns the handler of approval requests: the terminal, or the policy for runs without one. `given` holds the approvals for the rest of a thread.
pub fn approval_handler(
    format: Format,
    spaces: &Spaces,
    unattended: HeadlessPolicy,
    given: impl IntoIterator<Item = ThreadGrant>,
) -> ApprovalPolicy {
    let given: BTreeSet<ThreadGrant> = given.into_iter().collect();
    if has_terminal(format) {
        let desk = Mutex::new(TerminalState { given, lines: TerminalLines::new(Arc::new(read_stdin_line)) });
        return ApprovalPolicy::Ask(Arc::new(TerminalApprover { desk, trust: spaces.trust() }));
    }
    let otherwise = match unattended {
        HeadlessPolicy::Queue => Approval::Suspended,
        HeadlessPolicy::Deny => Approval::Refused,
        HeadlessPolicy::Allow => return ApprovalPolicy::Allow,
    };
    ApprovalPolicy::Ask(Arc::new(HeadlessApprover { given, spaces: spaces.clone(), otherwise }))
}

/// Approvals without a terminal: grants earlier approvals, and gives every other request the same answer.
struct HeadlessApprover {
    given: BTreeSet<ThreadGrant>,
    spaces: Spaces,
    otherwise: Approval,
}

impl ApprovalHandler for HeadlessApprover {
    fn ask<'a>(&'a self, thread: &'a ThreadId, asked: ApprovalOrigin, what: &'a str) -> BoxFuture<'a, Approval> {
        let answer = match (asked, ThreadGrant::parse_request(thread, what)) {
            // A limit needs a higher value, which only a user can give.
            (ApprovalOrigin::Limit, _) => Approval::Suspended,
            (ApprovalOrigin::Call, Some(grant)) if self.allows(&grant) => Approval::Approved,
            (ApprovalOrigin::Call, _) => self.otherwise,
        };
        Box::pin(std::future::ready(answer))
    }
}

impl HeadlessApprover {
    fn allows(&self, grant: &ThreadGrant) -> bool {
        let vouched = |world: DiskWorld| is_preapproved(&Items::new(&world), &grant.capability);
        is_approved(&self.given, &self.spaces.trust(), grant) || self.spaces.open().is_ok_and(vouched)
    }
}

fn is_approved(given: &BTreeSet<ThreadGrant>, trust: &Trust, grant: &ThreadGrant) -> bool {
    given.contains(grant) || trust.snapshot().is_ok_and(|now| now.allows(&grant.capability))
}

/// Approvals at the terminal, one question at a time. A question that was answered elsewhere is dropped with a note;
/// the next typed line answers the next question.
struct TerminalApprover {
    desk: Mutex<TerminalState>,
    /// Stores approvals for the project.
    trust: Trust,
}

struct TerminalState {
    /// Approvals for the rest of a thread.
    given: BTreeSet<ThreadGrant>,
    lines: TerminalLines,
}

/// A capability that a user approved for the rest of a thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThreadGrant {
    pub thread: String,
    pub capability: String,
}

impl ThreadGrant {
    /// Parses the requested capability of `rye.execute.tool.rye.bash.bash with {…}`; `None` for any other text.
    pub fn parse_request(thread: &ThreadId, what: &str) -> Option<Self> {
        let (capability, _) = what.split_once(" with ")?;
        Some(Self { thread: thread.to_string(), capability: capability.to_owned() })
    }
}

impl ApprovalHandler for TerminalApprover {
    fn ask<'a>(&'a self, thread: &'a ThreadId, asked: ApprovalOrigin, what: &'a str) -> BoxFuture<'a, Approval> {
        let question = match asked {
            ApprovalOrigin::Call => format!("{thread} requests {what}. Allow?"),
            ApprovalOrigin::Limit => format!("{thread} reached a limit: {what}. Continue?"),
        };
        let grant = ThreadGrant::parse_request(thread, what).filter(|_| asked == ApprovalOrigin::Call);
        Box::pin(async move {
            let mut desk = self.desk.lock().await;
            if let Some(grant) = &grant
                && is_approved(&desk.given, &self.trust, grant)
            {
                return Approval::Approved;
            }
            let answers = if grant.is_some() { "[y/N; t: in this thread, p: in this project]" } else { "[y/N]" };
            let put = || {
                write!(anstream::stderr().lock(), "{} {answers} ", printable(&question)).ok();
            };
            let open = OpenQuestion(true);
            let line = desk.lines.prompt_line(put).await;
            open.close();
            let answer = line.map_or(TypedAnswer::EndOfInput, |line| TypedAnswer::parse(&line));
            match (answer, grant) {
                (TypedAnswer::Thread, Some(grant)) => {
                    desk.given.insert(grant);
                }
                (TypedAnswer::Project, Some(grant)) => {
                    if let Err(error) = self.trust.record_capability(&grant.capability) {
                        writeln!(anstream::stderr().lock(), "approval not saved: {error}").ok();
                    }
                }
                (
                    TypedAnswer::Once
                    | TypedAnswer::Thread
                    | TypedAnswer::Project
                    | TypedAnswer::No
                    | TypedAnswer::EndOfInput,
                    _,
                ) => {}
            }
            answer.approval()
        })
    }
}

/// Guard of an open question; prints a note if it is dropped without an answer.
struct OpenQuestion(bool);

impl OpenQuestion {
    fn close(mut self) {
        self.0 = false;
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if self.0 {
            writeln!(anstream::stderr().lock(), "\nno answer needed: the request was answered elsewhere").ok();
        }
    }
}

/// Reads the next line; `None` at the end of the input.
type ReadLine = dyn Fn() -> Option<String> + Send + Sync;

/// Lines of the terminal, read only on demand.
struct TerminalLines {
    read: Arc<ReadLine>,
    sender: UnboundedSender<Option<String>>,
    receiver: UnboundedReceiver<Option<String>>,
    /// True while a read is pending; a dropped question leaves its read pending.
    reading: bool,
}

impl TerminalLines {
    fn new(read: Arc<ReadLine>) -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { read, sender, receiver, reading: false }
    }

    /// Prints a question and waits for the next line. Discards lines typed before the question.
    async fn prompt_line(&mut self, put: impl FnOnce()) -> Option<String> {
        while self.receiver.try_recv().is_ok() {
            self.reading = false;
        }
        put();
        if !std::mem::replace(&mut self.reading, true) {
            let (read, sender) = (Arc::clone(&self.read), self.sender.clone());
            // A read of a terminal cannot be canceled; the process exits without waiting for this thread.
            std::thread::spawn(move || {
                // The receiver may be gone.
                let _ = sender.send(read());
            });
        }
        let line = self.receiver.recv().await.flatten();
        self.reading = false;
        line
    }
}

/// Reads the next line of stdin.
fn read_stdin_line() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line),
    }
}

/// An answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TypedAnswer {
    Once,
    Thread,
    Project,
    No,
    /// No answer: the thread waits for an approval message.
    EndOfInput,
}

impl TypedAnswer {
    /// Parses an answer; any text other than an explicit yes means no.
    fn parse(line: &str) -> Self {
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Self::Once,
            "t" | "thread" => Self::Thread,
            "p" | "project" => Self::Project,
            _ => Self::No,
        }
    }

    fn approval(self) -> Approval {
        match self {
            Self::Once | Self::Thread | Self::Project => Approval::Approved,
            Self::No => Approval::Refused,
            Self::EndOfInput => Approval::Suspended,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Returns an empty project.
    fn nowhere() -> Spaces {
        Spaces { project: env!("CARGO_MANIFEST_DIR").into(), user: None, own: true }
    }

    #[test]
    fn headless_approver_allows_only_earlier_approvals() {
        let (thread, other) = (ThreadId::parse("a-1").unwrap(), ThreadId::parse("a-2").unwrap());
        let bash = "rye.execute.tool.rye.bash.bash with {\"command\":\"ls\"}";
        let given = ThreadGrant::parse_request(&thread, bash).unwrap();
        assert_eq!(given.capability, "rye.execute.tool.rye.bash.bash");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (unattended, otherwise) in
            [(HeadlessPolicy::Queue, Approval::Suspended), (HeadlessPolicy::Deny, Approval::Refused)]
        {
            let headless = approval_handler(Format::Json, &nowhere(), unattended, [given.clone()]);
            let ask = |thread: &ThreadId, asked, what: &str| runtime.block_on(headless.answer(thread, asked, what));
            assert_eq!(ask(&thread, ApprovalOrigin::Call, bash), Approval::Approved);
            assert_eq!(ask(&other, ApprovalOrigin::Call, bash), otherwise);
            assert_eq!(ask(&thread, ApprovalOrigin::Call, "rye.execute.tool.rye.bash.other with {}"), otherwise);
            assert_eq!(ask(&thread, ApprovalOrigin::Call, "nothing that is understood"), otherwise);
            assert_eq!(ask(&thread, ApprovalOrigin::Limit, "turns"), Approval::Suspended);
            // The calls of a child need approval when the child makes them.
            assert_eq!(ask(&thread, ApprovalOrigin::Call, "rye.execute.directive.worker with {}"), Approval::Approved);
        }
        assert!(!approval_handler(Format::Json, &nowhere(), HeadlessPolicy::Allow, []).is_attended());
    }

    #[test]
    fn typed_line_answers_the_latest_question() {
        let (typist, line) = std::sync::mpsc::channel::<String>();
        let (line, reads) = (std::sync::Mutex::new(line), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&reads);
        let read = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            line.lock().unwrap().recv().ok()
        };
        let mut lines = TerminalLines::new(Arc::new(read));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // The first question is dropped before any line is typed.
            {
                let first = lines.prompt_line(|| {});
                let mut first = std::pin::pin!(first);
                std::future::poll_fn(|context| {
                    assert!(first.as_mut().poll(context).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
            }
            // The next question receives the pending read.
            let asked = std::cell::Cell::new(false);
            let put = || {
                asked.set(true);
                typist.send("y".into()).unwrap();
            };
            assert_eq!(lines.prompt_line(put).await.as_deref(), Some("y"));
            assert!(asked.get());
            assert_eq!(reads.load(Ordering::SeqCst), 1, "one line was read for the two of them");
            drop(typist);
            assert_eq!(lines.prompt_line(|| {}).await, None, "the terminal is gone");
        });
    }

    #[test]
    fn only_an_explicit_yes_approves() {
        for (line, answer) in [
            ("y\n", TypedAnswer::Once),
            (" YES \n", TypedAnswer::Once),
            ("t\n", TypedAnswer::Thread),
            ("p\n", TypedAnswer::Project),
            ("\n", TypedAnswer::No),
            ("always\n", TypedAnswer::No),
            ("yy\n", TypedAnswer::No),
        ] {
            assert_eq!(TypedAnswer::parse(line), answer, "{line:?}");
        }
    }
}
