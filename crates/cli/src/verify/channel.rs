//! The side channel: messages over TCP. The data that is verified never travels here.

use super::failure::Failure;
use super::message::{Message, LINE_MAX};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// How long the other side may take to say the next thing. It gives up on RDMA earlier and says so.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// A connected side channel.
pub struct Channel {
    stream: TcpStream,
    lines: Receiver<Result<Message, Failure>>,
    /// A message that was looked at and is still to be received.
    kept: Option<Message>,
}

impl Channel {
    /// Takes over a connection; a thread reads it.
    pub fn new(stream: TcpStream) -> io::Result<Channel> {
        stream.set_nodelay(true)?;
        let reader = stream.try_clone()?;
        let (sender, lines) = mpsc::channel();
        std::thread::Builder::new().name("side channel".into()).spawn(move || {
            let mut reader = BufReader::new(reader);
            loop {
                let line = read_line(&mut reader);
                let last = line.is_err();
                if sender.send(line).is_err() || last {
                    return;
                }
            }
        })?;
        Ok(Channel { stream, lines, kept: None })
    }

    /// Our address of the connection.
    pub fn local(&self) -> io::Result<IpAddr> {
        Ok(self.stream.local_addr()?.ip().to_canonical())
    }

    /// Says something.
    pub fn say(&mut self, message: &Message) -> Result<(), Failure> {
        self.stream.write_all(message.line().as_bytes()).map_err(broken)
    }

    /// Waits for the next message; that the other side failed is a failure here.
    pub fn hear(&mut self) -> Result<Message, Failure> {
        if let Some(message) = self.kept.take() {
            return Ok(message);
        }
        match self.lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => line.and_then(understood),
            Err(RecvTimeoutError::Timeout) => {
                Err(Failure::Stalled(format!("the other side has said nothing for {SILENCE_MAX:?}")))
            }
            Err(RecvTimeoutError::Disconnected) => Err(closed()),
        }
    }

    /// Waits for the message that `wanted` takes apart.
    pub fn expect<T>(&mut self, wanted: impl Fn(&Message) -> Option<T>) -> Result<T, Failure> {
        let message = self.hear()?;
        wanted(&message).ok_or_else(|| Failure::Protocol(format!("unexpected `{}`", message.name())))
    }

    /// Whether a message waits; fails if the other side has failed or gone.
    pub fn has_message(&mut self) -> Result<bool, Failure> {
        if self.kept.is_some() {
            return Ok(true);
        }
        match self.lines.try_recv() {
            Ok(line) => {
                self.kept = Some(line.and_then(understood)?);
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => Err(closed()),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Ends the reading thread. A connection that is already gone needs no farewell.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn closed() -> Failure {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the other side has gone; see what it said last").into()
}

/// A process that is killed leaves an end, a reset or a broken pipe, as the moment will have it; to a person they
/// are the same.
fn broken(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            closed()
        }
        _ => error.into(),
    }
}

fn understood(message: Message) -> Result<Message, Failure> {
    match message {
        Message::Failed { finding: Some(finding), .. } => Err(Failure::BrokenThere(finding)),
        Message::Failed { text, finding: None } => Err(Failure::There(text)),
        other => Ok(other),
    }
}

fn read_line(reader: &mut impl BufRead) -> Result<Message, Failure> {
    let mut line = Vec::new();
    let read = reader.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut line).map_err(broken)?;
    match line.last() {
        Some(b'\n') => Message::parse(&line).map_err(Failure::Protocol),
        None => Err(closed()),
        Some(_) if read == LINE_MAX => Err(Failure::Protocol(format!("a line of over {LINE_MAX} bytes"))),
        Some(_) => Err(closed()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_side_that_has_gone_is_called_so_however_the_connection_broke() {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, PermissionDenied};
        for (kind, gone) in [(ConnectionReset, true), (BrokenPipe, true), (PermissionDenied, false)] {
            let said = broken(io::Error::from(kind)).to_string();
            assert_eq!(said.contains("gone"), gone, "{said}");
        }
    }

    #[test]
    fn lines_are_bounded_and_a_cut_one_is_the_end() {
        let long = vec![b'x'; LINE_MAX + 10];
        for (bytes, said) in
            [(long.as_slice(), "over"), (b"{\"say\":", "gone"), (b"", "gone"), (b"hello\n", "JSON")]
        {
            let error = read_line(&mut &*bytes).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let mut two: &[u8] = b"{\"say\":\"ready\"}\n{\"say\":\"bye\"}\n";
        assert!(matches!(read_line(&mut two), Ok(Message::Ready)));
        assert!(matches!(read_line(&mut two), Ok(Message::Bye)));
    }
}
