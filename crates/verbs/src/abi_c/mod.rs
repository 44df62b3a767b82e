//! The C structs of `<infiniband/verbs.h>`, field for field, and their sizes.
//!
//! Sizes and offsets are those of rdma-core's public 64-bit ABI, unchanged from v39 to v65; the newest
//! layout is used where a struct grew. Constant assertions pin them, and a test compares every
//! offset with the header that is installed. Nothing here does anything.

pub(crate) mod attributes;
pub(crate) mod constants;
pub(crate) mod context;
pub(crate) mod objects;
pub(crate) mod work;

/// Data for which all-zero bytes are a value: the C structs here.
///
/// # Safety
/// Every field of the implementing type must accept all-zero bytes.
pub(crate) unsafe trait Plain: Sized {
    /// The value with all bytes zero.
    fn zeroed() -> Self {
        // SAFETY: the trait promises that all-zero bytes are a value of the type.
        unsafe { std::mem::zeroed() }
    }
}

/// Name, size and field offsets of a C struct, for the comparison with the installed header.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name after `struct`.
    pub c_name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Names and offsets of the fields.
    pub fields: &'static [(&'static str, usize)],
}

/// Declares a C struct with its name in the header and its size in bytes on 64-bit machines.
macro_rules! c_struct {
    ($(#[$meta:meta])* struct $name:ident = $c:literal [$size:expr] {
        $($(#[$field_meta:meta])* $field:ident: $ty:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name { $($(#[$field_meta])* pub(crate) $field: $ty,)* }

        // SAFETY: fields are integers, arrays, raw pointers, optional functions and structs of these.
        unsafe impl $crate::abi_c::Plain for $name {}

        impl $name {
            pub(crate) const LAYOUT: $crate::abi_c::Layout = $crate::abi_c::Layout {
                c_name: $c,
                size: ::std::mem::size_of::<$name>(),
                fields: &[$((stringify!($field), ::std::mem::offset_of!($name, $field))),*],
            };
        }

        // Structs that hold pthread types have other sizes on other architectures.
        #[cfg(target_arch = "x86_64")]
        const _: () = assert!(::std::mem::size_of::<$name>() == $size);
    };
}
pub(crate) use c_struct;

/// All structs, for the test against the installed header.
pub const LAYOUTS: &[Layout] = &[
    attributes::DeviceAttr::LAYOUT,
    attributes::DeviceAttrEx::LAYOUT,
    attributes::PortAttr::LAYOUT,
    attributes::GidEntry::LAYOUT,
    attributes::GlobalRoute::LAYOUT,
    attributes::AhAttr::LAYOUT,
    attributes::QpCap::LAYOUT,
    attributes::QpInitAttr::LAYOUT,
    attributes::QpInitAttrEx::LAYOUT,
    attributes::RxHashConf::LAYOUT,
    attributes::QpAttr::LAYOUT,
    attributes::CqInitAttrEx::LAYOUT,
    attributes::ValuesEx::LAYOUT,
    context::Device::LAYOUT,
    context::Ops::LAYOUT,
    context::Context::LAYOUT,
    context::VerbsContext::LAYOUT,
    objects::Pd::LAYOUT,
    objects::Mr::LAYOUT,
    objects::CompChannel::LAYOUT,
    objects::Cq::LAYOUT,
    objects::CqEx::LAYOUT,
    objects::Qp::LAYOUT,
    objects::QpEx::LAYOUT,
    objects::AsyncEvent::LAYOUT,
    work::Sge::LAYOUT,
    work::SendWr::LAYOUT,
    work::RecvWr::LAYOUT,
    work::Wc::LAYOUT,
    work::DataBuf::LAYOUT,
];
