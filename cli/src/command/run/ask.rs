//! Approval of calls and of raised limits. At a terminal, the user answers each request. Without a terminal, the
//! headless policy decides. The policy can suspend the thread, and `rye threads approvals` then lists the request. An
//! approval can be remembered for a thread or for the project, never globally.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::Arc;

use clap::ValueEnum;
use rye_compiler::approvals::{ApprovalRequired, HeadlessPolicy, is_preapproved};
use rye_compiler::item::Items;
use rye_compiler::plan::ApprovalOrigin;
use rye_compiler::sandbox::SandboxKind;
use rye_engine::BoxFuture;
use rye_engine::disk_world::DiskWorld;
use rye_engine::engine::{ApprovalHandler, ApprovalPolicy, ApprovalRequest};
use rye_engine::event::{Approval, ImpliedRaise};
use rye_engine::thread_id::ThreadId;
use rye_engine::trust::{ApprovedCommands, Trust, TrustSnapshot};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::call_lines::call_lines;
use super::command_shape::CommandShape;
use super::grant_line::grant_line;
use super::renderer::RendererSender;
use super::request_counter::{CountedRequest, RequestCounter};
use super::typed_answer::TypedAnswer;
use crate::options::Format;
use crate::present::{BOLD, format_money, truncate_line};
use crate::report::printable;
use crate::typed_input::discard_typed;
use crate::workspace::Spaces;

/// Maximum characters of a name or of a typed line that a question repeats.
pub(super) const MAX_ECHO_CHARS: usize = 40;

/// Policy for calls that need approval when there is no terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeadlessPolicyArg {
    /// Allow the call
    Allow,
    /// Suspend the thread before the call until `rye threads approve`; trusted tools and the start of a directive need
    /// no approval
    Queue,
    /// Refuse the call and continue the thread; trusted tools and the start of a directive need no approval
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

/// Formats a warning about grants that need approval and are not acknowledged, for a run without a terminal. `None` if
/// there are no such grants.
pub fn headless_warning(grants: &[ApprovalRequired], unattended: HeadlessPolicy) -> Option<String> {
    let grants: Vec<String> = grants
        .iter()
        .filter(|grant| !grant.is_preapproved)
        .map(|grant| format!("`{}` ({})", grant.pattern, grant.tier))
        .collect();
    let otherwise = "change this with `--unattended` or `approvals.headless`, or add `<acknowledge>`";
    (!grants.is_empty()).then(|| {
        let policy = match unattended {
            HeadlessPolicy::Allow => "run without approval",
            HeadlessPolicy::Queue => "suspend the thread until `rye threads approve`",
            HeadlessPolicy::Deny => "are refused",
        };
        format!("no terminal for approvals: these risky calls {policy}: {}; {otherwise}", grants.join(", "))
    })
}

/// Returns the policy for approval requests. At a terminal, the user answers the requests. Without a terminal, the
/// headless policy `unattended` answers them. `given` are earlier approvals that apply to the rest of a thread.
/// `screen` renders the questions. `answers` reads the lines that the user types, for callers such as a chat that read
/// stdin themselves. If `answers` is `None`, the returned handler reads stdin.
pub fn approval_handler(
    format: Format,
    spaces: &Spaces,
    unattended: HeadlessPolicy,
    given: impl IntoIterator<Item = ThreadGrant>,
    screen: RendererSender,
    answers: Option<Arc<ReadLine>>,
) -> ApprovalPolicy {
    if has_terminal(format) {
        let given = given.into_iter().collect();
        let shapes = BTreeSet::new();
        // In a chat, text that the user typed before the question is a prompt; a run discards such text.
        let lines = match answers {
            Some(answers) => TerminalLines::new(answers, || ()),
            None => TerminalLines::new(Arc::new(read_stdin_line), discard_typed),
        };
        let terminal = Mutex::new(TerminalState { given, shapes, lines });
        let (spaces, requests) = (spaces.clone(), std::sync::Mutex::default());
        return ApprovalPolicy::Ask(Arc::new(TerminalApprover { terminal, spaces, screen, requests }));
    }
    headless_handler(spaces, unattended, given)
}

/// Returns the policy that answers approval requests when there is no terminal. The policy allows calls that the user
/// has approved before, for a thread (`given`) or for the project. `unattended` decides on all other calls.
pub fn headless_handler(
    spaces: &Spaces,
    unattended: HeadlessPolicy,
    given: impl IntoIterator<Item = ThreadGrant>,
) -> ApprovalPolicy {
    let given: BTreeSet<ThreadGrant> = given.into_iter().collect();
    let otherwise = match unattended {
        HeadlessPolicy::Queue => Approval::Suspended,
        HeadlessPolicy::Deny => Approval::PolicyRefused,
        HeadlessPolicy::Allow => return ApprovalPolicy::Allow,
    };
    ApprovalPolicy::Ask(Arc::new(HeadlessApprover { given, spaces: spaces.clone(), otherwise }))
}

/// Approvals without a terminal: approves calls that were approved before, and answers every other call with
/// `otherwise`. A request to raise a limit suspends the thread.
struct HeadlessApprover {
    given: BTreeSet<ThreadGrant>,
    spaces: Spaces,
    otherwise: Approval,
}

impl ApprovalHandler for HeadlessApprover {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        let answer = match (request.origin, ThreadGrant::parse_request(request.thread, request.what)) {
            // A limit needs a higher value, which only a user can choose.
            (ApprovalOrigin::Limit, _) => Approval::Suspended,
            (ApprovalOrigin::Call, Some(grant)) if self.allows(&grant, request.call.map(|call| &call.input)) => {
                Approval::Preapproved
            }
            (ApprovalOrigin::Call, _) => self.otherwise,
        };
        Box::pin(std::future::ready(answer))
    }
}

impl HeadlessApprover {
    fn allows(&self, grant: &ThreadGrant, input: Option<&Value>) -> bool {
        let preapproved = |world: DiskWorld| is_preapproved(&Items::new(&world), &grant.capability);
        is_approved(&self.given, &self.spaces.trust(), grant, input) || self.spaces.open().is_ok_and(preapproved)
    }
}

/// Returns true if the user has approved a call earlier: the capability of the call for this thread or for the project,
/// or the command of the call for the project.
fn is_approved(given: &BTreeSet<ThreadGrant>, trust: &Trust, grant: &ThreadGrant, input: Option<&Value>) -> bool {
    given.contains(grant) || is_approved_in_project(trust, &grant.capability, input)
}

/// Returns true if the user has approved the capability of a call, or the command in its input, for this project.
pub fn is_approved_in_project(trust: &Trust, capability: &str, input: Option<&Value>) -> bool {
    trust.snapshot().is_ok_and(|now: TrustSnapshot<'_>| {
        let covers = |approved: &ApprovedCommands| {
            approved.capability == capability
                && input.is_some_and(|input| CommandShape::of_approved(approved).covers(input))
        };
        now.allows(capability) || now.commands().iter().any(covers)
    })
}

/// Approvals at the terminal, one question at a time. A question that is answered elsewhere is dropped with a note, and
/// the next typed line answers the next question.
struct TerminalApprover {
    terminal: Mutex<TerminalState>,
    spaces: Spaces,
    screen: RendererSender,
    requests: std::sync::Mutex<RequestCounter>,
}

struct TerminalState {
    /// Approvals that the user has given for the rest of a thread.
    given: BTreeSet<ThreadGrant>,
    /// Approvals, for the rest of a thread, of all simple commands that start with certain words ([`CommandShape`]).
    shapes: BTreeSet<(ThreadGrant, CommandShape)>,
    lines: TerminalLines,
}

impl TerminalState {
    /// Returns true if the user has approved commands that start with the same words as the command of this call.
    fn covers(&self, grant: &ThreadGrant, input: &Value) -> bool {
        self.shapes.iter().any(|(approved, shape)| approved == grant && shape.covers(input))
    }
}

/// A capability that a user approved for the rest of a thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThreadGrant {
    pub thread: String,
    pub capability: String,
}

impl ThreadGrant {
    /// Parses the text of an approval request for a call (`CAPABILITY with INPUT`) to a grant of the capability for
    /// `thread`. `None` if the text has another form.
    pub fn parse_request(thread: &ThreadId, what: &str) -> Option<Self> {
        let (capability, _) = what.split_once(" with ")?;
        Some(Self { thread: thread.to_string(), capability: capability.to_owned() })
    }
}

impl ApprovalHandler for TerminalApprover {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        let grant = request
            .call
            .map(|call| ThreadGrant { thread: request.thread.to_string(), capability: call.capability.clone() });
        Box::pin(async move {
            let counted = CountedRequest::register(&self.requests, request);
            let mut terminal = self.terminal.lock().await;
            let input = request.call.map(|call| &call.input);
            let is_covered = |grant| input.is_some_and(|input| terminal.covers(grant, input));
            if let Some(grant) = &grant
                && (is_approved(&terminal.given, &self.spaces.trust(), grant, input) || is_covered(grant))
            {
                counted.answered();
                return Approval::Preapproved;
            }
            let shape = input.and_then(CommandShape::of_input);
            let question = self.format_question(request, counted.position(), shape.as_ref());
            let open = OpenQuestion(Some(&self.screen));
            let answer = self.read_answer(&mut terminal.lines, question, (grant.is_some(), shape.is_some())).await;
            open.close();
            counted.answered();
            match (answer, grant) {
                (TypedAnswer::Thread, Some(grant)) => {
                    self.screen.note(&format!("`{}` needs no further approval in this thread", grant.capability));
                    terminal.given.insert(grant);
                }
                (TypedAnswer::Project, Some(grant)) => {
                    self.screen.note(&match self.spaces.trust().record_capability(&grant.capability) {
                        Ok(()) => format!(
                            "`{0}` needs no further approval in this project; `rye trust --revoke {0}` ends this",
                            grant.capability
                        ),
                        Err(error) => format!("approval not saved: {error}"),
                    });
                }
                (TypedAnswer::Shape, Some(grant)) => {
                    if let Some(shape) = shape {
                        self.screen.note(&format!(
                            "simple commands that start with `{shape}` need no further approval in this thread"
                        ));
                        terminal.shapes.insert((grant, shape));
                    }
                }
                (TypedAnswer::ProjectShape, Some(grant)) => {
                    if let Some(shape) = shape {
                        self.screen.note(&match self.spaces.trust().record_commands(shape.approve(&grant.capability)) {
                            Ok(()) => format!(
                                "simple commands that start with `{shape}` need no further approval in this project; \
                                 `rye trust --revoke '{shape}'` ends this"
                            ),
                            Err(error) => format!("approval not saved: {error}"),
                        });
                    }
                }
                (
                    TypedAnswer::Once
                    | TypedAnswer::Shape
                    | TypedAnswer::ProjectShape
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

impl TerminalApprover {
    /// Prints the question, and reads lines until a line is an accepted answer. `offers` states which answers are
    /// accepted, as in `TypedAnswer::parse`. Returns `TypedAnswer::EndOfInput` if the input ends.
    async fn read_answer(&self, lines: &mut TerminalLines, question: String, offers: (bool, bool)) -> TypedAnswer {
        let mut prompt = question;
        loop {
            let Some(line) = lines.prompt_line(self.screen.ask(prompt)).await else { return TypedAnswer::EndOfInput };
            if let Some(answer) = TypedAnswer::parse(&line, offers) {
                return answer;
            }
            let keys = match offers {
                (_, true) => "`y`, `n`, `t`, `p`, `c` or `C`",
                (true, false) => "`y`, `n`, `t` or `p`",
                (false, false) => "`y` or `n`",
            };
            let typed = truncate_line(&line, MAX_ECHO_CHARS);
            prompt = format!("unknown answer `{typed}`; type {keys}: ");
        }
    }

    /// Formats a request on lines of its own: capability, arguments and sandbox of the call, or the limit.
    fn format_question(
        &self,
        request: ApprovalRequest<'_>,
        (number, count): (usize, usize),
        shape: Option<&CommandShape>,
    ) -> String {
        let head = format!("{BOLD}approval {number} of {count}{BOLD:#}: thread {}", request.thread);
        let Some(call) = request.call else {
            let question = request
                .raise
                .map_or_else(|| "Continue?".to_owned(), |raise| format!("{} and continue?", format_raise(raise)));
            return format!("{head} reached a limit\n  {}\n{question} [y/N] ", printable(request.what));
        };
        let mut lines = vec![head, format!("  capability: {}", printable(&call.capability))];
        let world = self.spaces.open().ok();
        let items = world.as_ref().map(|world| Items::new(world));
        lines.extend(call_lines(call, &self.spaces.project, items.as_ref()));
        if let Some(sandbox) = items.as_ref().and_then(|items| request.sandbox(items)) {
            lines.push(match sandbox.kind {
                // The start of a thread runs no sandboxed process, so the line is about the permissions of the new
                // thread.
                SandboxKind::Engine if is_thread_start(&call.capability) => {
                    "  starts: a thread with its own permissions, at most those of this thread".to_owned()
                }
                SandboxKind::Engine
                | SandboxKind::Files
                | SandboxKind::Requests
                | SandboxKind::Process
                | SandboxKind::None => format!("  sandbox: {}", printable(&sandbox.to_string())),
            });
        }
        lines.push(grant_line(&request, &call.capability));
        let shape = shape.map(|shape| {
            format!(", c: `{}` commands in this thread, C: in this project", printable(&shape.to_string()))
        });
        let shape = shape.unwrap_or_default();
        lines.push(format!("Allow? [y/N; t: in this thread, p: in this project{shape}] "));
        lines.join("\n")
    }
}

/// Returns true for the capability to start a directive.
fn is_thread_start(capability: &str) -> bool {
    capability.starts_with("rye.execute.directive.")
}

/// Formats the raise that an approval implies: `Raise turns to 4`.
pub fn format_raise(raise: &ImpliedRaise) -> String {
    let ImpliedRaise { limit, value } = raise;
    let value = if limit == "spend" { format_money(*value) } else { value.to_string() };
    format!("Raise {limit} to {value}")
}

/// A guard of an open question. If the guard is dropped before the question is answered, prints a note.
struct OpenQuestion<'a>(Option<&'a RendererSender>);

impl OpenQuestion<'_> {
    fn close(mut self) {
        if let Some(screen) = self.0.take() {
            screen.close_question(None);
        }
    }
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if let Some(screen) = self.0 {
            screen
                .close_question(Some("no answer needed: the request was answered elsewhere, or the thread is ending"));
        }
    }
}

/// Reads the next line; `None` at the end of the input.
pub type ReadLine = dyn Fn() -> Option<String> + Send + Sync;

/// A reader of lines from the terminal, which reads a line only when a question needs it.
struct TerminalLines {
    read: Arc<ReadLine>,
    /// Discards typed lines that were not read yet.
    discard: fn(),
    sender: UnboundedSender<Option<String>>,
    receiver: UnboundedReceiver<Option<String>>,
    /// True while a read of a line is pending. If the question that started the read is dropped, the read stays pending
    /// and serves the next question.
    reading: bool,
}

impl TerminalLines {
    fn new(read: Arc<ReadLine>, discard: fn()) -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { read, discard, sender, receiver, reading: false }
    }

    /// Prints a question with `put`, waits for the next line and returns it; `None` at the end of the input. Discards
    /// lines typed before the question.
    async fn prompt_line(&mut self, put: impl Future<Output = ()>) -> Option<String> {
        while self.receiver.try_recv().is_ok() {
            self.reading = false;
        }
        (self.discard)();
        put.await;
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

/// Reads the next line of stdin; `None` at its end, or if it cannot be read.
fn read_stdin_line() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rye_compiler::compile::{CompileRequest, compile};
    use rye_compiler::world::MapWorld;
    use rye_grammar::ItemId;

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
        let directive = "# A\n\n```xml\n<directive name=\"a\" version=\"1.0.0\"><metadata/></directive>\n```\n\nGo.\n";
        let disk = nowhere().open().unwrap();
        let world = MapWorld::with_fallback(&disk).project(".ai/directives/a.md", directive);
        let request = CompileRequest::new(ItemId::parse("a").unwrap());
        let plan = compile(&world, &request).value.unwrap().plan;
        for (unattended, otherwise) in
            [(HeadlessPolicy::Queue, Approval::Suspended), (HeadlessPolicy::Deny, Approval::PolicyRefused)]
        {
            let headless = headless_handler(&nowhere(), unattended, [given.clone()]);
            let ask = |thread: &ThreadId, origin, what: &str| {
                runtime.block_on(headless.answer(ApprovalRequest {
                    thread,
                    origin,
                    what,
                    call: None,
                    raise: None,
                    plan: &plan,
                    grants: &[],
                }))
            };
            assert_eq!(ask(&thread, ApprovalOrigin::Call, bash), Approval::Preapproved);
            assert_eq!(ask(&other, ApprovalOrigin::Call, bash), otherwise);
            assert_eq!(ask(&thread, ApprovalOrigin::Call, "rye.execute.tool.rye.bash.other with {}"), otherwise);
            assert_eq!(ask(&thread, ApprovalOrigin::Call, "nothing that is understood"), otherwise);
            assert_eq!(ask(&thread, ApprovalOrigin::Limit, "turns"), Approval::Suspended);
            // Starting a child is allowed: the calls of the child need their own approvals.
            assert_eq!(
                ask(&thread, ApprovalOrigin::Call, "rye.execute.directive.worker with {}"),
                Approval::Preapproved
            );
        }
        assert!(!headless_handler(&nowhere(), HeadlessPolicy::Allow, []).has_approver());
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
        let mut lines = TerminalLines::new(Arc::new(read), || {});
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // The first question is dropped before any line is typed.
            {
                let first = lines.prompt_line(std::future::ready(()));
                let mut first = std::pin::pin!(first);
                std::future::poll_fn(|context| {
                    assert!(first.as_mut().poll(context).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
            }
            // The next question receives the pending read.
            let is_prompted = std::cell::Cell::new(false);
            let put = async {
                is_prompted.set(true);
                typist.send("y".into()).unwrap();
            };
            assert_eq!(lines.prompt_line(put).await.as_deref(), Some("y"));
            assert!(is_prompted.get());
            assert_eq!(reads.load(Ordering::SeqCst), 1, "one line was read for the two of them");
            drop(typist);
            assert_eq!(lines.prompt_line(std::future::ready(())).await, None, "the terminal is gone");
        });
    }

    #[test]
    fn requests_of_replies_and_threads_are_numbered() {
        let (one, other) = (ThreadId::parse("a-1").unwrap(), ThreadId::parse("a-2").unwrap());
        let mut counter = RequestCounter::default();
        let ask = |counter: &mut RequestCounter, thread: &ThreadId, number, count| {
            counter.register(thread, (number, count));
            counter.position()
        };
        // Two calls of one reply.
        assert_eq!(ask(&mut counter, &one, 1, 2), (1, 2));
        counter.close(&one, true);
        assert_eq!(ask(&mut counter, &one, 2, 2), (2, 2));
        counter.close(&one, true);
        // Two threads at once.
        assert_eq!(ask(&mut counter, &one, 1, 1), (1, 1));
        assert_eq!(ask(&mut counter, &other, 1, 1), (1, 2));
        counter.close(&one, true);
        assert_eq!(counter.position(), (2, 2));
        counter.close(&other, false);
        // A reply whose second request never came.
        assert_eq!(ask(&mut counter, &one, 1, 2), (1, 2));
        counter.close(&one, true);
        assert_eq!(ask(&mut counter, &one, 1, 1), (1, 1));
    }

    #[test]
    fn typed_answer_is_one_of_the_offered_keys() {
        for (line, answer) in [
            ("y\n", Some(TypedAnswer::Once)),
            (" YES \n", Some(TypedAnswer::Once)),
            ("t\n", Some(TypedAnswer::Thread)),
            ("p\n", Some(TypedAnswer::Project)),
            ("\n", Some(TypedAnswer::No)),
            ("No\n", Some(TypedAnswer::No)),
            ("c\n", Some(TypedAnswer::Shape)),
            ("C\n", Some(TypedAnswer::ProjectShape)),
            ("always\n", None),
            ("yy\n", None),
            ("1\n", None),
        ] {
            assert_eq!(TypedAnswer::parse(line, (true, true)), answer, "{line:?}");
        }
        assert_eq!(TypedAnswer::parse("t", (false, false)), None, "a limit has no scope");
        for shape in ["c", "C"] {
            assert_eq!(TypedAnswer::parse(shape, (true, false)), None, "the command has no shape");
        }
    }
}
