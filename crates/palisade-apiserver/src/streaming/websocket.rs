//! WebSockets of clients: the handshake, remote commands in `v5.channel.k8s.io`, port forwarding, and logs.
//!
//! Implements: RFC 6455, section 4.2 (the opening handshake of a server), and Kubernetes' subprotocols. In `v5.channel.k8s.io`
//! the first byte of a message is its channel (0 standard input, 1 output, 2 error, 3 the exit status, 4 the size of the
//! terminal), and 255 closes the channel that follows. `SPDY/3.1+portforward.k8s.io` carries the bytes of a SPDY connection.
//! KEP-4006, <https://kep.k8s.io/4006>. As upstream, the API server translates the former to SPDY and unwraps the latter;
//! runtimes get the older subprotocols as they are.
//!
//! Frames are those of tokio-tungstenite. Compared with fastwebsockets: that one copies less, which matters little beside a
//! container's pipes, but has fewer releases, brings second versions of `rand` and `thiserror`, and leaves the order of pongs
//! and closes to its user; tungstenite is also what kube-rs uses at the other end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, Method, header};
use palisade_apimachinery::Status;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

use super::spdy::{self, Event, PIECE};
use crate::http::Reply;
use crate::stream_source::Streams;

/// The subprotocol that is translated.
pub(super) const REMOTE_COMMAND: &str = "v5.channel.k8s.io";
/// The subprotocol that carries a SPDY connection.
pub(super) const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// Subprotocols of logs; none is the first.
const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";
/// A subprotocol that is the client's token, from browsers, which cannot set headers. It is for this server alone.
pub(crate) const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// The value that a server's `Sec-WebSocket-Accept` is made with (RFC 6455, section 1.3).
const ACCEPT_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// No client sends larger messages; `kubectl` sends 32 KiB.
const MOST_MESSAGE: usize = 1 << 20;
/// Pongs of this side that may wait while its output is held up.
const PINGS: usize = 8;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// Whether the client wants another protocol of a kind, such as `websocket`, on this connection.
pub(crate) fn wants_upgrade(headers: &HeaderMap, protocol: Option<&str>) -> bool {
    let lists = |name: header::HeaderName, wanted: &str| {
        tokens(headers, &name).any(|t| t.eq_ignore_ascii_case(wanted))
    };
    lists(header::CONNECTION, "upgrade")
        && protocol
            .map_or_else(|| headers.contains_key(header::UPGRADE), |wanted| lists(header::UPGRADE, wanted))
}

/// The subprotocols that the client offers, without its token.
pub(super) fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL).filter(|protocol| !protocol.starts_with(BEARER))
}

/// The items of a header that is a list. What is no text is no item.
pub(super) fn tokens<'h>(headers: &'h HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// The answer to an opening handshake, or what is wrong with it.
pub(super) fn accept(
    method: &Method,
    headers: &HeaderMap,
    protocol: Option<&str>,
) -> Result<Reply, Box<Status>> {
    let version = headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    // swallowed: a key that is not base64 is none, and rejected below
    let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16));
    let (Some(key), true, &Method::GET) = (key, version, method) else {
        return Err(Status::bad_request(
            "the WebSocket handshake is malformed: GET, version 13 and a key are required",
        ));
    };
    let mut reply = Reply::bytes(101, "", Bytes::new())
        .with_header(header::UPGRADE, HeaderValue::from_static("websocket"))
        .with_header(header::CONNECTION, HeaderValue::from_static("Upgrade"))
        .with_header(header::SEC_WEBSOCKET_ACCEPT, accept_key(key)?);
    if let Some(protocol) = protocol {
        let value =
            HeaderValue::from_str(protocol).map_err(|error| Status::bad_request(error.to_string()))?;
        reply = reply.with_header(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
    Ok(reply)
}

fn accept_key(key: &str) -> Result<HeaderValue, Box<Status>> {
    let text = format!("{key}{ACCEPT_GUID}");
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    HeaderValue::from_str(&STANDARD.encode(hash)).map_err(|error| Status::internal(error.to_string()))
}

/// A connection after its handshake.
async fn server<IO: AsyncRead + AsyncWrite + Unpin>(io: IO) -> WebSocketStream<IO> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MOST_MESSAGE))
        .max_frame_size(Some(MOST_MESSAGE))
        .write_buffer_size(0)
        .max_write_buffer_size(MOST_MESSAGE);
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

fn closing() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

/// The subprotocol of a log for a client that offers some, and whether it is base64. Nothing if none is known.
pub(super) fn log_protocol(headers: &HeaderMap) -> Option<(Option<&str>, bool)> {
    let mut offered = offered(headers).peekable();
    if offered.peek().is_none() {
        return Some((None, false));
    }
    offered.find_map(|protocol| match protocol {
        BINARY => Some((Some(protocol), false)),
        BASE64 => Some((Some(protocol), true)),
        _ => None,
    })
}

/// Sends a log until it ends or the client has gone.
pub(super) async fn send_log<IO>(client: IO, mut pieces: mpsc::Receiver<Bytes>, base64: bool)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut client = server(client).await;
    loop {
        let message = tokio::select! {
            piece = pieces.recv() => match piece {
                Some(piece) if base64 => Message::text(STANDARD.encode(piece)),
                Some(piece) => Message::Binary(piece),
                None => break,
            },
            // What clients send has no meaning; that they leave has.
            received = client.next() => match received {
                Some(Ok(message)) if !message.is_close() => continue,
                _ => return,
            },
        };
        if client.send(message).await.is_err() {
            return;
        }
    }
    // The client may have gone already.
    let _ = client.close(None).await;
}

/// Copies between a WebSocket whose messages are the bytes of a connection, and that connection.
pub(super) async fn tunnel<C, R>(client: C, runtime: R)
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    let (mut to_client, mut from_client) = server(client).await.split();
    let (mut from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let up = async {
        while let Some(Ok(message)) = from_client.next().await {
            match message {
                Message::Binary(bytes) => {
                    if to_runtime.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Text(_) | Message::Close(_) | Message::Frame(_) => return,
            }
        }
    };
    let down = async {
        let mut buffer = BytesMut::with_capacity(PIECE);
        loop {
            buffer.reserve(PIECE);
            match from_runtime.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if to_client.send(Message::Binary(buffer.split().freeze())).await.is_err() {
                return;
            }
        }
        // The client may have gone already.
        let _ = to_client.send(closing()).await;
    };
    tokio::select! { () = up => {}, () = down => {} }
}

/// The streams of a remote command on the runtime's connection, with the channels that they are.
fn runtime_streams(streams: Streams) -> Vec<(u8, u32, &'static str)> {
    let wanted = [
        (ERROR, true, "error"),
        (STDIN, streams.stdin, "stdin"),
        (STDOUT, streams.stdout, "stdout"),
        (STDERR, streams.stderr, "stderr"),
        (RESIZE, streams.tty, "resize"),
    ];
    let wanted = wanted.into_iter().filter(|(_, wanted, _)| *wanted);
    // A client's streams have odd numbers.
    wanted.zip((1..).step_by(2)).map(|((channel, _, name), stream)| (channel, stream, name)).collect()
}

/// Translates a remote command of a client to the runtime's SPDY connection, until either ends.
///
/// A command whose exit status is not known has failed: it is reported as such, never as an end without a word.
pub(super) async fn remote_command<C, R>(client: C, runtime: R, streams: Streams)
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    let (mut to_client, mut from_client) = server(client).await.split();
    let (from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let channels = runtime_streams(streams);
    let stream_of =
        |channel: u8| channels.iter().find(|(own, ..)| *own == channel).map(|(_, stream, _)| *stream);
    let mut frames = spdy::Writer::default();
    for (_, stream, name) in &channels {
        let frame = frames.open(*stream, &[("streamtype", name)]);
        if to_runtime.write_all(&frame).await.is_err() {
            // The reader below finds the connection closed, and reports it.
            break;
        }
    }
    let (ping, mut pings) = mpsc::channel::<u32>(PINGS);
    let up = async {
        loop {
            let frame = tokio::select! {
                Some(id) = pings.recv() => spdy::ping(id),
                received = from_client.next() => match received {
                    Some(Ok(Message::Binary(message))) => {
                        for frame in to_frames(&message, stream_of) {
                            if to_runtime.write_all(&frame).await.is_err() {
                                return std::future::pending().await;
                            }
                        }
                        continue;
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    _ => return,
                },
            };
            if to_runtime.write_all(&frame).await.is_err() {
                // The other direction finds the end, after what the command still wrote.
                return std::future::pending().await;
            }
        }
    };
    let down = async {
        // Clients wait for a first message: the connection stands.
        let ready = if streams.stdout {
            STDOUT
        } else if streams.stderr {
            STDERR
        } else {
            ERROR
        };
        if to_client.send(Message::Binary(Bytes::from(vec![ready]))).await.is_err() {
            return;
        }
        let mut reader = spdy::Reader::new(from_runtime);
        let mut open = channels.clone();
        let mut has_status = false;
        while !open.is_empty() {
            match reader.next().await {
                Ok(Some(Event::Data(stream, piece))) => {
                    let Some((channel, ..)) = channels.iter().find(|(_, own, _)| *own == stream) else {
                        continue;
                    };
                    has_status |= *channel == ERROR;
                    let mut message = BytesMut::with_capacity(piece.len() + 1);
                    message.extend_from_slice(&[*channel]);
                    message.extend_from_slice(&piece);
                    if to_client.send(Message::Binary(message.freeze())).await.is_err() {
                        return;
                    }
                }
                Ok(Some(Event::Finished(stream) | Event::Reset(stream))) => {
                    // What goes to the runtime does not keep the command open.
                    open.retain(|(channel, own, _)| *own != stream && !matches!(*channel, STDIN | RESIZE));
                }
                Ok(Some(Event::Ping(id))) => {
                    // More pings than that wait for the same pong.
                    let _ = ping.try_send(id);
                }
                Ok(Some(Event::Opened(_))) => {}
                Ok(Some(Event::GoAway) | None) => break,
                Err(error) => {
                    tracing::debug!(%error, "the connection to the container runtime broke");
                    break;
                }
            }
        }
        if !has_status {
            let status = json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                "message": "Internal error occurred: the connection to the container runtime ended before the exit status"});
            let mut message = vec![ERROR];
            message.extend_from_slice(status.to_string().as_bytes());
            if to_client.send(Message::Binary(message.into())).await.is_err() {
                return;
            }
        }
        // The client may have gone already.
        let _ = to_client.send(closing()).await;
    };
    tokio::select! { () = up => {}, () = down => {} }
}

/// A message of the client as frames to the runtime. What is for no open stream, or for one that the client does not
/// write to, is dropped.
fn to_frames(message: &Bytes, stream_of: impl Fn(u8) -> Option<u32>) -> Vec<BytesMut> {
    match message.split_first() {
        Some((&CLOSE, &[STDIN])) => {
            stream_of(STDIN).map(|stream| spdy::data(stream, spdy::FIN, &[])).into_iter().collect()
        }
        Some((&channel @ (STDIN | RESIZE), content)) if !content.is_empty() => {
            let Some(stream) = stream_of(channel) else { return Vec::new() };
            content.chunks(PIECE).map(|piece| spdy::data(stream, 0, piece)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[test]
    fn accepts_a_handshake_as_the_rfc_has_it() {
        let mut headers = HeaderMap::new();
        headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(accept(&Method::GET, &headers, None).is_err(), "no version");
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        let reply = accept(&Method::GET, &headers, Some(REMOTE_COMMAND)).expect("a handshake");
        let value = |name| reply.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
        assert_eq!(value(header::SEC_WEBSOCKET_ACCEPT).expect("accepted"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(value(header::SEC_WEBSOCKET_PROTOCOL).expect("a protocol"), REMOTE_COMMAND);
        assert!(accept(&Method::POST, &headers, None).is_err(), "a POST");
        headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_static("short"));
        assert!(accept(&Method::GET, &headers, None).is_err(), "no nonce");
    }

    #[test]
    fn reads_lists_of_tokens_and_keeps_the_bearer_to_itself() {
        let mut headers = HeaderMap::new();
        headers.append(header::CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.append(header::UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.append(
            header::SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static("a, base64url.bearer.authorization.k8s.io.eA"),
        );
        headers.append(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("b"));
        assert!(wants_upgrade(&headers, Some("websocket")) && wants_upgrade(&headers, None));
        assert!(!wants_upgrade(&headers, Some("SPDY/3.1")));
        assert_eq!(offered(&headers).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn numbers_the_streams_as_the_runtime_expects_them() {
        let all = Streams { stdin: true, stdout: true, stderr: true, tty: false };
        let names = |streams| {
            runtime_streams(streams).into_iter().map(|(_, id, name)| (id, name)).collect::<Vec<_>>()
        };
        assert_eq!(names(all), [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")]);
        let tty = Streams { stderr: false, tty: true, ..all };
        assert_eq!(names(tty), [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "resize")]);
    }

    #[test]
    fn drops_messages_for_streams_that_the_client_does_not_write() {
        let stream_of = |channel: u8| Some(u32::from(channel) * 10);
        for (case, message, frames) in [
            ("input", &[STDIN, b'x'][..], 1),
            ("the end of the input", &[CLOSE, STDIN], 1),
            ("a size", &[RESIZE, b'{'], 1),
            ("an exit status of the client's own", &[ERROR, b'{'], 0),
            ("output", &[STDOUT, b'x'], 0),
            ("the end of the output", &[CLOSE, STDOUT], 0),
            ("nothing", &[], 0),
            ("no input", &[STDIN], 0),
        ] {
            assert_eq!(to_frames(&Bytes::copy_from_slice(message), stream_of).len(), frames, "{case}");
        }
        assert!(
            to_frames(&Bytes::from_static(&[STDIN, b'x']), |_| None).is_empty(),
            "a stream that is not open"
        );
    }

    async fn client_of(io: tokio::io::DuplexStream) -> Vec<Vec<u8>> {
        let mut client = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
        let mut messages = Vec::new();
        while let Some(Ok(message)) = client.next().await {
            match message {
                Message::Binary(bytes) => messages.push(bytes.to_vec()),
                Message::Close(_) => break,
                _ => {}
            }
        }
        messages
    }

    async fn played(script: &[BytesMut]) -> Vec<Vec<u8>> {
        let (client, server) = duplex(1 << 16);
        let (runtime, mut far) = duplex(1 << 16);
        for frame in script {
            far.write_all(frame).await.expect("written");
        }
        far.shutdown().await.expect("shut down");
        let streams = Streams { stdout: true, ..Streams::default() };
        let (messages, ()) = tokio::join!(client_of(client), remote_command(server, runtime, streams));
        messages
    }

    #[tokio::test]
    async fn passes_output_and_exit_status_on() {
        let script = [
            spdy::data(3, 0, b"hello"),
            spdy::data(1, 0, b"{}"),
            spdy::data(3, spdy::FIN, b""),
            spdy::data(1, spdy::FIN, b""),
        ];
        assert_eq!(played(&script).await, [&[STDOUT][..], b"\x01hello", b"\x03{}"]);
    }

    #[tokio::test]
    async fn a_runtime_that_is_gone_before_the_exit_status_is_a_failure() {
        let messages = played(&[spdy::data(3, spdy::FIN, b"hello")]).await;
        let last = messages.last().expect("a status");
        assert_eq!(last.first(), Some(&ERROR));
        let status: serde_json::Value = serde_json::from_slice(last.get(1..).expect("a body")).expect("JSON");
        assert_eq!((&status["status"], &status["code"]), (&json!("Failure"), &json!(500)));
    }
}
