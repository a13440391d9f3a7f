//! `palisade lsp`: the rules of `check` in an editor, by the Language Server Protocol on stdin and stdout.
//!
//! `frame` reads and writes messages, `inbox` keeps them in order, `server` is the state that they move. `findings`, `fixes`, `hover` and
//! `completion` are pure functions of a text; `charts` renders the charts of open documents in a thread of its own.

mod charts;
mod completion;
mod findings;
mod fixes;
pub mod frame;
mod hover;
mod inbox;
pub mod message;
mod rules;
mod server;
mod text;

use std::{
    io::{self, BufRead, Write},
    sync::Arc,
    thread,
};

pub use self::{
    charts::ChartQueue,
    rules::{ConfigChoice, Options},
    server::Server,
};
use self::{
    frame::{Frame, MAX_BODY, read_frame, write_frame},
    inbox::{Event, Inbox},
    message::{ErrorCode, Message},
};

/// Serves one client until it ends the session or closes the stream. Whether the session ended in order.
pub fn serve(
    options: Options,
    input: impl BufRead + Send + 'static,
    output: &mut impl Write,
) -> io::Result<bool> {
    let (inbox, queue) = (Arc::new(Inbox::default()), Arc::new(ChartQueue::default()));
    let reader = Arc::clone(&inbox);
    thread::Builder::new().name("reader".to_owned()).spawn(move || read(input, &reader))?;
    charts::start(Arc::clone(&queue), Arc::clone(&inbox))?;
    let mut server = Server::new(options, Arc::clone(&queue));
    let ended = work(&mut server, &inbox, output);
    // Neither thread is waited for: the reader may be in a read that never ends.
    inbox.close();
    queue.close();
    ended
}

fn work(server: &mut Server, inbox: &Inbox, output: &mut impl Write) -> io::Result<bool> {
    loop {
        let event = match inbox.next() {
            Some(event) => Some(event),
            None if server.judge_next() => None,
            None => match inbox.wait() {
                Some(event) => Some(event),
                None => return Ok(false),
            },
        };
        match event {
            Some(Event::Message(message)) => server.handle(message),
            Some(Event::Cancelled(message)) => server.cancel(&message),
            Some(Event::Chart(result)) => server.chart_done(*result),
            None => {}
        }
        let messages = server.take_output();
        for message in &messages {
            write_frame(output, message.to_string().as_bytes())?;
        }
        if !messages.is_empty() {
            output.flush()?;
        }
        if let Some(in_order) = server.is_over() {
            return Ok(in_order);
        }
    }
}

/// Reads messages until the stream ends.
fn read(mut input: impl BufRead, inbox: &Inbox) {
    loop {
        let (message, bytes) = match read_frame(&mut input) {
            Ok(Frame::Body(body)) => (Message::parse(&body), body.len()),
            Ok(Frame::TooLong(length)) => (
                unreadable(format!("a message of {length} bytes was skipped: at most {MAX_BODY} are read")),
                0,
            ),
            Ok(Frame::NoLength) => (unreadable("a message has no Content-Length".to_owned()), 0),
            Ok(Frame::End) | Err(_) => break,
        };
        if !inbox.add(message, bytes) {
            break;
        }
    }
    inbox.close();
}

fn unreadable(reason: String) -> Message {
    Message::Unreadable { id: serde_json::Value::Null, code: ErrorCode::InvalidRequest, reason }
}
