//! A message as an entry of a stream: pairs of a field and a value, which may be any bytes.

use pillarbox_core::wire::{self, Arrival, Wire};
use redis::Cmd;

/// The field of the payload; it comes first.
const BODY: &str = "body";

/// Stands before the name of a header that would pass for something else.
const HEADER: &str = "header:";

/// Bytes of a command beside its fields: its name and options, and what a header may get before its name.
const AROUND: usize = 96;

/// A command that need not grow while an entry is written.
pub(super) fn room_for(wire: &Wire<'_>, stream: &str) -> Cmd {
    // Name, stream, up to five options, the body and the content type; then two for each header.
    Cmd::with_capacity(11 + 2 * wire.headers.len(), AROUND + stream.len() + wire.bytes())
}

/// Adds the fields of a message to an `XADD`.
pub(super) fn write(command: &mut Cmd, wire: Wire<'_>) {
    let Wire { body, content_type, headers } = wire;
    command.arg(BODY).arg(&body[..]);
    if let Some(content_type) = content_type {
        command.arg(wire::CONTENT_TYPE).arg(&*content_type);
    }
    for (name, value) in headers {
        match is_taken(&name) {
            true => command.arg(format!("{HEADER}{name}")).arg(&*value),
            false => command.arg(&*name).arg(&*value),
        };
    }
}

/// Reads an entry of ours or of anybody else: without a body it has all in its headers.
pub(super) fn read(stream: &str, fields: Vec<(Vec<u8>, Vec<u8>)>) -> Arrival {
    let (mut body, mut headers) = (Vec::new(), Vec::new());
    for (name, value) in fields {
        if name == BODY.as_bytes() {
            body = value;
            continue;
        }
        let (name, value) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&value));
        let name = name.strip_prefix(HEADER).filter(|name| is_taken(name)).unwrap_or(&name);
        headers.push((name.to_owned(), value.into_owned()));
    }
    wire::read(stream, body, None, headers)
}

fn is_taken(name: &str) -> bool {
    name == BODY || name.starts_with(HEADER)
}

#[cfg(test)]
mod tests {
    use pillarbox_core::Message;
    use redis::Arg;

    use super::*;

    fn fields(message: &Message) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut command = Cmd::new();
        write(&mut command, Wire::plain(message));
        let words: Vec<_> = command
            .args_iter()
            .map(|arg| match arg {
                Arg::Simple(word) => word.to_vec(),
                _ => panic!("only words are sent"),
            })
            .collect();
        words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// BUS-02.
    #[test]
    fn a_header_named_like_the_body_is_no_body() {
        let message = Message::new("t", vec![0, 255])
            .content_type("x/y")
            .header("body", "forged")
            .header("header:body", "1")
            .header("header:", "2")
            .header("Body", "3");
        let fields = fields(&message);
        assert_eq!(fields[0], (b"body".to_vec(), vec![0, 255]));
        assert_eq!(fields.iter().filter(|(name, _)| name == b"body").count(), 1);
        assert_eq!(read("elsewhere", fields), Arrival { message, is_named: true });
    }

    #[test]
    fn an_entry_of_a_stranger_is_read_without_a_panic() {
        let fields = [("price", "7"), ("header:x", "1"), ("\u{fffd}", "\u{fffd}")];
        let mut fields: Vec<_> = fields.map(|(name, value)| (name.into(), value.into())).into();
        fields.push((vec![0xff], vec![0xfe]));
        let arrival = read("orders", fields);
        assert!(!arrival.is_named);
        assert_eq!((arrival.message.topic(), arrival.message.payload().len()), ("orders", 0));
        assert_eq!(arrival.message.get_headers()["price"], "7");
        assert_eq!(arrival.message.get_headers()["header:x"], "1");
    }
}
