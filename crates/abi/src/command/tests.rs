#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn every_command_has_a_number_of_its_own_and_fits_a_message() {
    for (index, row) in TABLE.iter().enumerate() {
        assert!(TABLE[..index].iter().all(|other| other.code < row.code), "{} is out of order", row.name);
        for bytes in [row.request_bytes, row.reply_bytes] {
            assert!(Header::BYTES + bytes <= MESSAGE_BYTES_MAX, "{}: {bytes} bytes", row.name);
            assert_eq!(bytes % 4, 0, "{}", row.name);
        }
        assert!(row.descriptors <= DESCRIPTORS_MAX);
    }
    const { assert!(Header::BYTES + Refused::BYTES <= MESSAGE_BYTES_MAX) };
}

/// The bytes of each version are for ever: a program of last year must be understood.
#[test]
fn bytes_are_what_they_have_always_been() {
    let mut out = [0; MESSAGE_BYTES_MAX];
    let ask = AskMemory(RegisterMemory { pd: 1, access: 2, base: 3, length: 4, iova: 5 });
    let bytes = encode(AskMemory::CODE, 7, 0, &ask, &mut out);
    let expected: &[u8] = b"SVDC\x01\0\x05\0\x07\0\0\0\0\0\0\0\
        \x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0";
    assert_eq!(&out[..bytes], expected);
    for (name, bytes) in [
        ("QueryDevice", (0, 152)),
        ("Attach", (8, 8)),
        ("CreateCq", (16, 8)),
        ("CreateQp", (40, 24)),
        ("ModifyQp", (64, 0)),
        ("QueryQp", (8, 56)),
        ("DefineDevice", (176, 8)),
        ("ListDevices", (64, 1800)),
    ] {
        let row = TABLE.iter().find(|row| row.name == name).unwrap();
        assert_eq!((row.request_bytes, row.reply_bytes), bytes, "{name}");
    }
}

#[test]
fn what_is_written_is_read() {
    let mut out = [0; MESSAGE_BYTES_MAX];
    let init =
        crate::QpInit { pd: 1, send_cq: 2, max_inline_data: 9, sq_sig_all: true, ..Default::default() };
    let ask = AskQp((&init).into());
    let bytes = encode(AskQp::CODE, 1, 0, &ask, &mut out);
    let (header, command) = decode(&out[..bytes]).unwrap();
    assert_eq!((header.sequence, command), (1, ask.into()));
    let Command::CreateQp(asked) = command else { panic!("{command:?}") };
    assert_eq!(CreateQp::from(&crate::QpInit::from(&asked)), ask.0);

    let attributes = crate::QpAttributes {
        state: crate::QpState::Rtr,
        dest_gid: [7; 16],
        has_gid: true,
        dest_qpn: 77,
        max_dest_rd_atomic: 3,
        ..Default::default()
    };
    assert_eq!(Attributes::from(&attributes).checked(), Some(attributes));
    let nonsense = Attributes { state: 77, ..Attributes::from(&attributes) };
    assert_eq!(nonsense.checked(), None);
}

#[test]
fn refusals_carry_their_words_and_are_cut_between_letters() {
    let mut out = [0; MESSAGE_BYTES_MAX];
    let bytes = encode(AskPd::CODE, 3, 12, &Refused::new(Denial::Quota, "2 of 2 domains"), &mut out);
    let (errno, refused) = decode_reply::<AskPd>(&out[..bytes]).unwrap().unwrap_err();
    assert_eq!((errno, refused.denial, refused.text()), (12, 5, "2 of 2 domains"));
    let mut text = [b'x'; TEXT_BYTES + 1];
    text[TEXT_BYTES - 1..].copy_from_slice("é".as_bytes());
    let long = core::str::from_utf8(&text).unwrap();
    assert_eq!(Refused::new(Denial::Host, long).text(), &long[..TEXT_BYTES - 1]);
    let lying = Refused { text_bytes: u32::MAX, ..Refused::new(Denial::Host, "x") };
    assert_eq!(lying.text(), "");
}

#[test]
fn what_is_no_command_is_named() {
    let mut good = [0; MESSAGE_BYTES_MAX];
    let bytes = encode(EndPd::CODE, 0, 0, &EndPd::default(), &mut good);
    let changed = |at: usize, to: u8| {
        let mut message = good;
        message[at] = to;
        message
    };
    for (message, wrong) in [
        (&good[..7], Malformed::Short(7)),
        (&changed(0, 0)[..bytes], Malformed::Magic),
        (&changed(4, 2)[..bytes], Malformed::Version(2)),
        (&changed(6, 99)[..bytes], Malformed::Code(99)),
        (&changed(12, 1)[..bytes], Malformed::Status),
        (&good[..bytes - 1], Malformed::Length { name: "DeallocPd", needed: 8, given: 7 }),
        (&good[..bytes + 1], Malformed::Length { name: "DeallocPd", needed: 8, given: 9 }),
    ] {
        assert_eq!(decode(message), Err(wrong));
    }
}
