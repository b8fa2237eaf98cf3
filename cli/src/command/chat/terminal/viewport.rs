//! The rows below the finished lines of a chat: the end of a streaming reply, the editor or a question, hints, running
//! work and the status.

use rye_engine::event::Delivery;

use super::submission::DelayedMessage;
use super::{ChatTerminal, TerminalSession};
use crate::command::chat::keys::name_keys;
use crate::command::chat::overlay::fit_hint;
use crate::command::chat::screen::{Row, Viewport};
use crate::command::run::progress::Progress;
use crate::present::DIM;
use crate::present::wrap::cut_to_width;
use crate::report::printable;

/// The hint that is shown beside running work. The placeholder stands for a key.
const STOP_HINT: &str = "{app.interrupt} to interrupt";
/// Maximum number of unfinished rows of a reply that the viewport shows.
const MAX_HELD_ROWS: usize = 3;
/// Maximum number of queued messages that are shown.
const MAX_QUEUE_ROWS: usize = 3;

impl ChatTerminal {
    /// Creates the display of the running work of a session.
    pub(super) fn activity_of(session: &TerminalSession) -> Progress {
        let mut activity = Progress::in_viewport(name_keys(STOP_HINT, &session.keys.bindings));
        activity.show_outputs(session.requests.engine.running_outputs().clone());
        activity
    }

    /// Replaces the placeholders of a hint, such as `{app.interrupt}`, with the keys that the user has bound to the
    /// actions.
    pub(super) fn name_keys(&self, hint: &str) -> String {
        name_keys(hint, &self.session.keys.bindings)
    }

    /// Returns the viewport. From top to bottom, it contains the end of a streaming reply, the open question or the
    /// editor (with the cursor), the overlay or a hint, the activity, the queued messages and the status.
    pub(super) fn viewport(&self) -> Viewport {
        let (columns, max_rows) = (self.columns(), self.screen.size().viewport_rows());
        let width = columns.saturating_sub(1);
        let status = self.session.status.row(columns);
        let mut below = Vec::new();
        if let Some(overlay) = &self.overlay {
            below.extend(overlay.rows(columns, max_rows.saturating_sub(3).max(1)));
            let keys = "{tui.editor.cursorUp}, {tui.editor.cursorDown}: select · {tui.input.submit}: take · \
                        {app.interrupt}: close the list";
            below.push(Row::new(format!("{DIM}{}{DIM:#}", cut_to_width(&self.name_keys(keys), width))));
        } else if let Some(hint) = self.hint {
            let hint = self.name_keys(hint);
            below.push(Row::new(format!("{DIM}{}{DIM:#}", cut_to_width(fit_hint(&hint, width), width))));
        }
        if self.is_running {
            let lines = self.activity.rows(self.human.main_thread(), width);
            below.extend(lines.into_iter().map(Row::new));
        }
        let stop_hint = self.name_keys(STOP_HINT);
        below.extend(self.user_commands.row(&stop_hint, width).map(Row::new));
        below.extend(self.compaction.as_ref().map(|running| Row::new(running.row(&stop_hint, width))));
        if self.is_animated() {
            below.extend(self.activity.output_rows(width).iter().map(|row| Row::new(format!("{DIM}{row}{DIM:#}"))));
        }
        let queue = self.queue.iter().map(|queued| (queued.delivery, &queued.text));
        for (delivery, text) in queue.chain(self.delayed.iter().map(DelayedMessage::shown)).take(MAX_QUEUE_ROWS) {
            let sign = if delivery == Delivery::Steer { "⏎" } else { "↷" };
            let text = crate::present::truncate_line(&printable(text), columns);
            below.push(Row::new(format!("{DIM}{}{DIM:#}", cut_to_width(&format!("{sign} queued: {text}"), width))));
        }
        below.truncate(max_rows.saturating_sub(2));
        below.extend((status.width() > 0 && max_rows > 1).then_some(status));
        let own_rows = max_rows.saturating_sub(below.len()).max(1);
        let (own, cursor) = self.question_rows(columns, own_rows).unwrap_or_else(|| {
            let view = self.editor.view(columns, own_rows);
            (view.rows, view.cursor)
        });
        // Omits a row that is wider than the terminal, because such a row would wrap.
        let free = max_rows.saturating_sub(below.len() + own.len()).min(MAX_HELD_ROWS);
        let mut rows = self.markdown.unstable_rows(columns, free);
        rows.retain(|row| row.width() <= columns);
        // Without a cursor, the rows above the editor can be erased after any change of the size: see `screen`.
        let is_asked = self.request.is_some() || self.question.is_some();
        let hides_cursor = self.is_running && !is_asked && self.editor.is_empty();
        let cursor = (rows.is_empty() || !hides_cursor).then_some((cursor.0 + rows.len(), cursor.1));
        rows.extend(own);
        rows.append(&mut below);
        Viewport { rows, cursor, hides_cursor }
    }
}
