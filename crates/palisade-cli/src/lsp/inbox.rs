//! What waits for the server: messages of the client in their order, and charts that were rendered.
//!
//! A request that is cancelled while it waits is never worked on. The queue is bounded by bytes: a client that writes faster than
//! the server works is read more slowly, as by any full pipe.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{charts::ChartResult, message::Message};

/// How many bytes of messages wait; one message may always.
const MOST_BYTES: usize = 64 << 20;

/// Something to work on.
#[derive(Debug)]
pub(super) enum Event {
    /// Of the client.
    Message(Message),
    /// A request that the client cancelled.
    Cancelled(Message),
    /// A chart was rendered and judged.
    Chart(Box<ChartResult>),
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Event, usize)>,
    bytes: usize,
    is_closed: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message of so many bytes, when there is space for it. Whether the queue is still open.
    pub(super) fn add(&self, message: Message, bytes: usize) -> bool {
        let mut state = self.lock();
        if let Some(cancelled) = message.cancelled() {
            let waiting = state.waiting.iter_mut().find(
                |(event, _)| matches!(event, Event::Message(Message::Request { id, .. }) if *id == cancelled),
            );
            if let Some((event, _)) = waiting
                && let Event::Message(message) = event
            {
                let message = std::mem::replace(message, Message::Ignored);
                *event = Event::Cancelled(message);
            }
            return !state.is_closed;
        }
        while state.bytes.saturating_add(bytes) > MOST_BYTES && !state.waiting.is_empty() && !state.is_closed
        {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes = state.bytes.saturating_add(bytes);
        state.waiting.push_back((Event::Message(message), bytes));
        self.changed.notify_all();
        !state.is_closed
    }

    /// Adds a chart.
    pub(super) fn add_chart(&self, result: ChartResult) {
        let mut state = self.lock();
        state.waiting.push_back((Event::Chart(Box::new(result)), 0));
        self.changed.notify_all();
    }

    /// Nothing is added any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// The next event, if one waits.
    pub(super) fn next(&self) -> Option<Event> {
        self.take(&mut self.lock())
    }

    /// The next event, when there is one; `None` if the queue is closed.
    pub(super) fn wait(&self) -> Option<Event> {
        let mut state = self.lock();
        loop {
            if let Some(event) = self.take(&mut state) {
                return Some(event);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take(&self, state: &mut State) -> Option<Event> {
        let (event, bytes) = state.waiting.pop_front()?;
        state.bytes = state.bytes.saturating_sub(bytes);
        self.changed.notify_all();
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(text.as_bytes())
    }

    #[test]
    fn a_request_that_is_cancelled_while_it_waits_is_not_worked_on() {
        let inbox = Inbox::default();
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":"1","method":"b"}"#,
            r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"1"}}"#,
            r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":7}}"#,
        ] {
            inbox.add(message(text), 1);
        }
        assert!(
            matches!(inbox.next(), Some(Event::Message(Message::Request { method, .. })) if method == "a")
        );
        assert!(
            matches!(inbox.next(), Some(Event::Cancelled(Message::Request { method, .. })) if method == "b")
        );
        assert!(inbox.next().is_none());
    }

    #[test]
    fn a_full_queue_makes_the_reader_wait_and_a_closed_one_ends() {
        let inbox = Arc::new(Inbox::default());
        let note = || message(r#"{"jsonrpc":"2.0","method":"a"}"#);
        inbox.add(note(), MOST_BYTES);
        let reader = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                inbox.add(note(), MOST_BYTES);
                inbox.close();
            })
        };
        assert!(inbox.lock().waiting.len() == 1, "the second one does not fit");
        assert!(inbox.wait().is_some() && inbox.wait().is_some() && inbox.wait().is_none());
        reader.join().unwrap();
    }
}
