//! Control commands: what a program, or whoever manages devices, asks of a device in another process.
//!
//! A message is a [`Header`] and one struct of fixed size, little-endian; a door that keeps messages apart
//! (SOCK_SEQPACKET, a virtqueue) carries them. An answer has the header of its question, with a status: 0 and the
//! answer's struct, or an errno and [`Refused`]. Descriptors travel beside a message, in a fixed number per command.
//!
//! [`TABLE`] is all there is. A number is never used again; a struct that must grow gets a new number, so that a
//! program and a daemon of different age agree on every command that both know. [`VERSION`] changes only with the header.

mod layout;
mod name;
mod values;

pub use layout::{In, Layout, Out};
pub use name::{BadName, Name, NAME_BYTES};
pub use values::*;

/// Version of header and rules.
pub const VERSION: u16 = 1;
/// First bytes of every message: `SVDC`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SVDC");
/// Bytes of the longest message.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Descriptors that travel beside a message, at most.
pub const DESCRIPTORS_MAX: usize = 3;

layout::layout! {
    /// Begins every message.
    pub struct Header {
        /// [`MAGIC`].
        pub magic: u32,
        /// [`VERSION`].
        pub version: u16,
        /// Number of the command.
        pub code: u16,
        /// Whatever the asker likes; the answer has it too.
        pub sequence: u32,
        /// Zero in questions; in answers zero or a positive errno.
        pub status: u32,
    }
}

/// Bytes that are no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than a header.
    #[error("a message of {0} bytes; the header alone has 16")]
    Short(usize),
    /// Something else speaks.
    #[error("the first four bytes are not SVDC")]
    Magic,
    /// A version that is not ours.
    #[error("version {0} of the control commands; this side speaks version {VERSION}")]
    Version(u16),
    /// No such command.
    #[error("command {0} is not known here; this daemon or this library is older than the other side")]
    Code(u16),
    /// The struct has another size.
    #[error("{name} has {needed} bytes, {given} came")]
    Length {
        /// The command.
        name: &'static str,
        /// What its struct takes.
        needed: usize,
        /// What came after the header.
        given: usize,
    },
    /// A question with a status.
    #[error("a question has status 0")]
    Status,
}

/// A command that can be asked, and what answers it.
pub trait Request: Layout + Into<Command> {
    /// Its number.
    const CODE: u16;
    /// Descriptors beside the answer.
    const DESCRIPTORS: usize;
    /// The answer.
    type Reply: Layout + Copy;
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number.
    pub code: u16,
    /// Name.
    pub name: &'static str,
    /// Bytes of the question's struct.
    pub request_bytes: usize,
    /// Bytes of the answer's.
    pub reply_bytes: usize,
    /// Descriptors beside the answer.
    pub descriptors: usize,
}

macro_rules! commands {
    ($($(#[$meta:meta])* $code:literal $name:ident($wrapper:ident $inner:ty) -> $reply:ty, $descriptors:literal;)*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $wrapper(pub $inner);

            impl Layout for $wrapper {
                const BYTES: usize = <$inner as Layout>::BYTES;
                fn put(&self, out: &mut Out<'_>) {
                    self.0.put(out);
                }
                fn get(from: &mut In<'_>) -> Self {
                    $wrapper(Layout::get(from))
                }
            }

            impl From<$wrapper> for Command {
                fn from(request: $wrapper) -> Command {
                    Command::$name(request.0)
                }
            }

            impl Request for $wrapper {
                const CODE: u16 = $code;
                const DESCRIPTORS: usize = $descriptors;
                type Reply = $reply;
            }
        )*

        /// A command with what it says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Command {
            $($(#[$meta])* $name($inner),)*
        }

        /// Every command.
        pub const TABLE: &[Row] = &[$(Row {
            code: $code,
            name: stringify!($name),
            request_bytes: <$inner as Layout>::BYTES,
            reply_bytes: <$reply as Layout>::BYTES,
            descriptors: $descriptors,
        },)*];

        impl Command {
            /// Its row of the table.
            pub fn row(&self) -> Row {
                match self {
                    $(Command::$name(_) => Row {
                        code: $code,
                        name: stringify!($name),
                        request_bytes: <$inner as Layout>::BYTES,
                        reply_bytes: <$reply as Layout>::BYTES,
                        descriptors: $descriptors,
                    },)*
                }
            }

            fn body(code: u16, body: &[u8]) -> Result<Command, Malformed> {
                match code {
                    $($code => {
                        let (needed, given) = (<$inner as Layout>::BYTES, body.len());
                        if needed != given {
                            return Err(Malformed::Length { name: stringify!($name), needed, given });
                        }
                        Ok(Command::$name(Layout::get(&mut In(body))))
                    })*
                    _ => Err(Malformed::Code(code)),
                }
            }
        }
    };
}

commands! {
    /// Shows the device behind this socket.
    1 QueryDevice(AskDevice Nothing) -> DeviceShown, 0;
    /// Attaches the program.
    2 Attach(AskAttach Attach) -> Attached, 3;
    /// Makes a protection domain.
    3 AllocPd(AskPd Nothing) -> Number, 0;
    /// Removes it.
    4 DeallocPd(EndPd Number) -> Nothing, 0;
    /// Registers memory; the answer is the key.
    5 RegisterMemory(AskMemory RegisterMemory) -> Number, 0;
    /// When answered, no access through the key follows.
    6 DeregisterMemory(EndMemory Number) -> Nothing, 0;
    /// Makes a completion channel; its reading end is beside the answer.
    7 CreateChannel(AskChannel Nothing) -> Number, 1;
    /// Removes it.
    8 DestroyChannel(EndChannel Number) -> Nothing, 0;
    /// Makes a completion queue.
    9 CreateCq(AskCq CreateCq) -> CqCreated, 1;
    /// Removes it.
    10 DestroyCq(EndCq Number) -> Nothing, 0;
    /// Makes a queue pair.
    11 CreateQp(AskQp CreateQp) -> QpCreated, 1;
    /// Changes it.
    12 ModifyQp(ChangeQp ModifyQp) -> Nothing, 0;
    /// Shows it.
    13 QueryQp(ShowQp Number) -> Attributes, 0;
    /// Removes it. None of its completions follows.
    14 DestroyQp(EndQp Number) -> Nothing, 0;
    /// Has an event of the completion queue written: what was asked for is there already.
    15 SignalCq(TellCq Number) -> Nothing, 0;
    /// Defines a device.
    64 DefineDevice(Define DefineDevice) -> Number, 0;
    /// Removes it.
    65 UndefineDevice(Undefine UndefineDevice) -> Nothing, 0;
    /// Shows devices.
    66 ListDevices(List ListDevices) -> DevicePage, 0;
    /// Shows one.
    67 ShowDevice(Show DeviceNamed) -> DeviceRow, 0;
    /// Makes the socket where it can be opened, if it has none yet.
    68 ExposeDevice(Expose DeviceNamed) -> Exposed, 0;
    /// Limits a tenant, known before or not; the answer is its number.
    69 LimitTenant(Limit LimitTenant) -> Number, 0;
}

/// Writes a message; how many bytes it has.
pub fn encode<T: Layout>(
    code: u16,
    sequence: u32,
    status: u32,
    body: &T,
    out: &mut [u8; MESSAGE_BYTES_MAX],
) -> usize {
    let header = Header { magic: MAGIC, version: VERSION, code, sequence, status };
    let mut writer = Out(out);
    header.put(&mut writer);
    body.put(&mut writer);
    Header::BYTES + T::BYTES
}

/// Reads a header.
pub fn header(message: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let Some((head, body)) = message.split_at_checked(Header::BYTES) else {
        return Err(Malformed::Short(message.len()));
    };
    let header = Header::get(&mut In(head));
    if header.magic != MAGIC {
        return Err(Malformed::Magic);
    }
    if header.version != VERSION {
        return Err(Malformed::Version(header.version));
    }
    Ok((header, body))
}

/// Reads a question.
pub fn decode(message: &[u8]) -> Result<(Header, Command), Malformed> {
    let (header, body) = header(message)?;
    if header.status != 0 {
        return Err(Malformed::Status);
    }
    Ok((header, Command::body(header.code, body)?))
}

/// Reads an answer to `R`: what was asked for, or the errno and why not.
pub fn decode_reply<R: Request>(message: &[u8]) -> Result<Result<R::Reply, (u32, Refused)>, Malformed> {
    let (header, body) = header(message)?;
    if header.code != R::CODE {
        return Err(Malformed::Code(header.code));
    }
    let name = "the answer";
    let (needed, given) = match header.status {
        0 => (R::Reply::BYTES, body.len()),
        _ => (Refused::BYTES, body.len()),
    };
    if needed != given {
        return Err(Malformed::Length { name, needed, given });
    }
    Ok(match header.status {
        0 => Ok(R::Reply::get(&mut In(body))),
        errno => Err((errno, Refused::get(&mut In(body)))),
    })
}

#[cfg(test)]
mod tests;
