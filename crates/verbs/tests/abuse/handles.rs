//! Handles that are none: null, given back, of another kind, next to one, and addresses out of nowhere.

use std::collections::BTreeMap;

use crate::exports::{call, export};
use crate::signatures::{Argument, Kind, ALL, KINDS};
use crate::{alone, assert_refused};

/// A live object of each kind.
pub struct Objects {
    of: BTreeMap<Kind, usize>,
}

/// Calls `name`, which must make something.
fn made(name: &str, words: [usize; 6]) -> usize {
    // SAFETY: good handles, and structs that are large enough, come from the callers below.
    let (value, errno) = unsafe { call(export(name), words) };
    assert_ne!(value, 0, "{name}: {}", std::io::Error::from_raw_os_error(errno));
    value
}

/// Calls `name`, which removes an object; its errno.
pub fn removed(name: &str, handle: usize) -> i32 {
    // SAFETY: the removing functions take a handle alone.
    unsafe { call(export(name), [handle, 0, 0, 0, 0, 0]) }.0 as i32
}

/// Value of a field of a C struct of ours.
///
/// # Safety
/// `object` points to such a struct.
pub unsafe fn field<T: Copy>(object: usize, of: &str, name: &str) -> T {
    let layout = srdma_verbs::LAYOUTS.iter().find(|layout| layout.c_name == of).unwrap();
    let offset = layout.fields.iter().find(|field| field.0 == name).unwrap().1;
    // SAFETY: the caller's promise.
    unsafe { std::ptr::with_exposed_provenance::<T>(object + offset).read() }
}

/// The device on loopback; one for the whole program.
pub fn device() -> usize {
    std::env::set_var("SRDMA_ADDR", "127.0.0.1");
    let list = made("ibv_get_device_list", [0; 6]);
    // SAFETY: a list with one device and a null behind it.
    let first = unsafe { std::ptr::with_exposed_provenance::<usize>(list).read() };
    assert_ne!(first, 0, "the loopback device");
    // SAFETY: a list of ours.
    unsafe { call(export("ibv_free_device_list"), [list, 0, 0, 0, 0, 0]) };
    first
}

/// Attributes of a modest queue pair on `cq`.
pub fn qp_attributes(cq: usize) -> [u64; 64] {
    let mut words = [0u64; 64];
    let offsets = |name: &str| {
        let layout = srdma_verbs::LAYOUTS.iter().find(|layout| layout.c_name == "ibv_qp_init_attr").unwrap();
        layout.fields.iter().find(|field| field.0 == name).unwrap().1
    };
    words[offsets("send_cq") / 8] = cq as u64;
    words[offsets("recv_cq") / 8] = cq as u64;
    let bytes = |at: usize, value: u32, words: &mut [u64; 64]| {
        words[at / 8] |= u64::from(value) << (at % 8 * 8);
    };
    let cap = offsets("cap");
    for (index, value) in [4, 4, 2, 2, 16].into_iter().enumerate() {
        bytes(cap + index * 4, value, &mut words);
    }
    bytes(offsets("qp_type"), 2, &mut words);
    words
}

impl Objects {
    pub fn new() -> Objects {
        let device = device();
        let context = made("ibv_open_device", [device, 0, 0, 0, 0, 0]);
        let channel = made("ibv_create_comp_channel", [context, 0, 0, 0, 0, 0]);
        let pd = made("ibv_alloc_pd", [context, 0, 0, 0, 0, 0]);
        let mr = made("ibv_reg_mr", [pd, 0x1000, 4096, 1, 0, 0]);
        let cq = made("ibv_create_cq", [context, 16, 0, channel, 0, 0]);
        let mut attributes = qp_attributes(cq);
        let qp = made("ibv_create_qp", [pd, attributes.as_mut_ptr() as usize, 0, 0, 0, 0]);
        let mut buf = 0usize;
        made("ibv_alloc_buf", [pd, 4096, &raw mut buf as usize, 0, 0, 0]);
        // SAFETY: live objects; nobody may wait in them, as no event ever comes.
        unsafe {
            for fd in
                [field::<i32>(context, "ibv_context", "async_fd"), field(channel, "ibv_comp_channel", "fd")]
            {
                libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
            }
        }
        use Kind::{Buf, Channel, Context, Cq, Device, Mr, Pd, Qp};
        let of = [
            (Device, device),
            (Context, context),
            (Pd, pd),
            (Mr, mr),
            (Channel, channel),
            (Cq, cq),
            (Qp, qp),
            (Buf, buf),
        ];
        Objects { of: of.into() }
    }

    pub fn get(&self, kind: Kind) -> usize {
        self.of[&kind]
    }

    /// Removes all of them, in an order that lets each go; the handles that are now freed.
    pub fn remove(self) -> BTreeMap<Kind, usize> {
        for (name, kind) in [
            ("ibv_free_buf", Kind::Buf),
            ("ibv_destroy_qp", Kind::Qp),
            ("ibv_destroy_cq", Kind::Cq),
            ("ibv_destroy_comp_channel", Kind::Channel),
            ("ibv_dereg_mr", Kind::Mr),
            ("ibv_dealloc_pd", Kind::Pd),
            ("ibv_close_device", Kind::Context),
        ] {
            let errno = removed(name, self.of[&kind]);
            assert!(kind == Kind::Buf || errno == 0, "{name}: {errno}");
        }
        self.of
    }
}

/// Each handle argument of each function in turn gets each wrong handle, the others being good.
#[test]
fn a_handle_that_is_none_is_refused_by_every_function() {
    let _alone = alone();
    // Freed before the others are made: addresses of live objects are not those of freed ones.
    let freed = Objects::new().remove();
    let live = Objects::new();
    for kind in KINDS.into_iter().filter(|&kind| kind != Kind::Device) {
        assert_ne!(freed[&kind], live.get(kind), "{kind:?}: the grave did not hold");
    }
    let mut tried = 0;
    for signature in ALL {
        for (position, argument) in signature.takes.iter().enumerate() {
            let Argument::Of(wanted) = *argument else { continue };
            let mut wrong = vec![("null", 0), ("nowhere", 0x10), ("far", usize::MAX & !7)];
            wrong.push(("beside one", live.get(wanted) + 8));
            let others = KINDS.into_iter().filter(|&kind| kind != wanted);
            wrong.extend(others.map(|kind| ("of another kind", live.get(kind))));
            if wanted != Kind::Device {
                wrong.push(("freed", freed[&wanted]));
            }
            for (what, handle) in wrong {
                // A queue without a channel is a queue.
                if signature.name == "ibv_create_cq" && wanted == Kind::Channel && handle == 0 {
                    continue;
                }
                let mut places = [[0u64; 512]; 6];
                let mut words = [0; 6];
                for (index, takes) in signature.takes.iter().enumerate() {
                    words[index] = match *takes {
                        Argument::Of(kind) => live.get(kind),
                        Argument::Number | Argument::Size => 1,
                        Argument::Struct => places[index].as_mut_ptr() as usize,
                        Argument::Zeros => 0,
                    };
                }
                if signature.name == "ibv_create_cq" {
                    words[4] = 0; // the only vector
                }
                words[position] = handle;
                // SAFETY: structs are zeros with room to spare; what is wrong is a handle.
                let (value, errno) = unsafe { call(export(signature.name), words) };
                let what = format!("{} with {what} {wanted:?} ({handle:#x})", signature.name);
                assert_refused(signature.returns, value, errno, libc::EINVAL, &what);
                tried += 1;
            }
        }
    }
    assert!(tried > 300, "{tried}");
    // Nothing of it has harmed what is alive.
    live.remove();
}

#[test]
fn what_was_removed_once_cannot_be_removed_again_nor_with_its_context() {
    let _alone = alone();
    let first = Objects::new();
    let context = first.get(Kind::Context);
    // Closing first: everything made through it ends with it.
    let handles = first.of.clone();
    assert_eq!(removed("ibv_close_device", context), 0);
    for (name, kind) in [
        ("ibv_destroy_qp", Kind::Qp),
        ("ibv_destroy_cq", Kind::Cq),
        ("ibv_destroy_comp_channel", Kind::Channel),
        ("ibv_dereg_mr", Kind::Mr),
        ("ibv_dealloc_pd", Kind::Pd),
        ("ibv_close_device", Kind::Context),
    ] {
        assert_eq!(removed(name, handles[&kind]), libc::EINVAL, "{name} after its context");
    }
    let again = Objects::new().remove();
    for (name, kind) in [("ibv_destroy_qp", Kind::Qp), ("ibv_dereg_mr", Kind::Mr)] {
        assert_eq!(removed(name, again[&kind]), libc::EINVAL, "{name} twice");
    }
}

/// The header's inline functions follow a handle themselves and call through the table of its context; a removed
/// object answers there, too.
#[test]
fn posting_to_and_polling_what_was_removed_is_refused() {
    let _alone = alone();
    type Post = unsafe extern "C" fn(usize, usize, usize) -> i32;
    type Notify = unsafe extern "C" fn(usize, i32) -> i32;
    let objects = Objects::new();
    let context = objects.get(Kind::Context);
    let table = srdma_verbs::LAYOUTS.iter().find(|layout| layout.c_name == "ibv_context").unwrap();
    let ops = context + table.fields.iter().find(|field| field.0 == "ops").unwrap().1;
    // SAFETY: the table of an open context; its functions are of these types.
    let (post_send, post_recv, poll_cq, notify) = unsafe {
        (
            field::<Post>(ops, "ibv_context_ops", "post_send"),
            field::<Post>(ops, "ibv_context_ops", "post_recv"),
            field::<unsafe extern "C" fn(usize, i32, usize) -> i32>(ops, "ibv_context_ops", "poll_cq"),
            field::<Notify>(ops, "ibv_context_ops", "req_notify_cq"),
        )
    };
    let freed = objects.remove();
    let (request, mut bad, mut completion) = ([0u64; 32], 0usize, [0u64; 8]);
    let at = request.as_ptr() as usize;
    // SAFETY: an empty request and places for results; the objects are in their graves.
    unsafe {
        for post in [post_send, post_recv] {
            bad = 0;
            assert_eq!(post(freed[&Kind::Qp], at, &raw mut bad as usize), libc::EINVAL);
            assert_eq!(bad, at, "bad_wr");
            assert_eq!(post(0, at, &raw mut bad as usize), libc::EINVAL);
            assert_eq!(post(0, at, 0), libc::EINVAL);
        }
        let place = completion.as_mut_ptr() as usize;
        assert_eq!(poll_cq(freed[&Kind::Cq], 1, place), -libc::EINVAL);
        assert_eq!(poll_cq(0, 1, place), -libc::EINVAL);
        assert_eq!(notify(freed[&Kind::Cq], 0), libc::EINVAL);
        // The program's view of what was removed is still its own memory.
        assert_eq!(field::<usize>(freed[&Kind::Qp], "ibv_qp", "context"), context);
    }
    let _ = bad;
}

/// A queue pair in INIT, which takes receives.
fn to_init(qp: usize) {
    let layout = srdma_verbs::LAYOUTS.iter().find(|layout| layout.c_name == "ibv_qp_attr").unwrap();
    let offset = |name: &str| layout.fields.iter().find(|field| field.0 == name).unwrap().1;
    let mut attributes = [0u8; 512];
    attributes[offset("qp_state")] = 1;
    attributes[offset("port_num")] = 1;
    // State, access flags, partition key and port.
    let words = [qp, attributes.as_mut_ptr() as usize, 1 | 1 << 3 | 1 << 4 | 1 << 5, 0, 0, 0];
    // SAFETY: a live queue pair, and attributes with room to spare.
    assert_eq!(unsafe { call(export("ibv_modify_qp"), words) }.0 as i32, 0);
}

/// Programs must not, but some do: one thread posts and polls while another removes.
#[test]
fn posting_and_polling_while_another_thread_removes_ends_in_errors() {
    type Post = unsafe extern "C" fn(usize, usize, usize) -> i32;
    type Poll = unsafe extern "C" fn(usize, i32, usize) -> i32;
    let _alone = alone();
    let mut refused = 0;
    for _ in 0..100 {
        let objects = Objects::new();
        let (qp, cq, context) = (objects.get(Kind::Qp), objects.get(Kind::Cq), objects.get(Kind::Context));
        to_init(qp);
        let table = srdma_verbs::LAYOUTS.iter().find(|layout| layout.c_name == "ibv_context").unwrap();
        let ops = context + table.fields.iter().find(|field| field.0 == "ops").unwrap().1;
        // SAFETY: the table of an open context; its functions are of these types.
        let (post, poll) = unsafe {
            (
                field::<Post>(ops, "ibv_context_ops", "post_recv"),
                field::<Poll>(ops, "ibv_context_ops", "poll_cq"),
            )
        };
        let (request, mut bad, mut completions) = ([0u64; 8], 0usize, [0u64; 64]);
        refused += std::thread::scope(|scope| {
            let user = scope.spawn(|| {
                let (at, bad) = (request.as_ptr() as usize, &raw mut bad as usize);
                let place = completions.as_mut_ptr() as usize;
                let mut gone = 0;
                while gone < 10 {
                    // SAFETY: an empty request and places for results; the objects are alive or in their graves.
                    unsafe {
                        gone += i32::from(post(qp, at, bad) == libc::EINVAL);
                        poll(cq, 8, place);
                    }
                }
                gone
            });
            objects.remove();
            user.join().unwrap()
        });
    }
    assert_eq!(refused, 1000);
}
