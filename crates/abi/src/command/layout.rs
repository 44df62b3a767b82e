//! Structs as bytes: fields in order, little-endian, no padding but what is spelled out.
//!
//! Fields are ordered so that each lies at a multiple of its own size: a driver in C may overlay the same struct.

/// Writes fields one after the other. What does not fit is left out: whoever calls has sized the buffer by
/// [`Layout::BYTES`].
#[derive(Debug)]
pub struct Out<'a>(pub &'a mut [u8]);

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let taken = core::mem::take(&mut self.0);
        if taken.len() >= bytes.len() {
            let (head, tail) = taken.split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            self.0 = tail;
        }
    }
}

/// Reads fields one after the other; past the end there are zeros.
#[derive(Debug)]
pub struct In<'a>(pub &'a [u8]);

impl In<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (head, tail) = self.0.split_at(N.min(self.0.len()));
        bytes[..head.len()].copy_from_slice(head);
        self.0 = tail;
        bytes
    }
}

/// A value with one form as bytes.
pub trait Layout: Sized {
    /// Bytes it takes.
    const BYTES: usize;
    /// Appends it.
    fn put(&self, out: &mut Out<'_>);
    /// Reads it. Every sequence of bytes is a value: whether it makes sense is for whoever gets it to judge.
    fn get(from: &mut In<'_>) -> Self;
}

macro_rules! integer {
    ($($int:ty),*) => {$(
        impl Layout for $int {
            const BYTES: usize = core::mem::size_of::<$int>();
            fn put(&self, out: &mut Out<'_>) {
                out.put(&self.to_le_bytes());
            }
            fn get(from: &mut In<'_>) -> Self {
                <$int>::from_le_bytes(from.take())
            }
        }
    )*};
}
integer!(u8, u16, u32, u64);

impl<const N: usize> Layout for [u8; N] {
    const BYTES: usize = N;
    fn put(&self, out: &mut Out<'_>) {
        out.put(self);
    }
    fn get(from: &mut In<'_>) -> Self {
        from.take()
    }
}

/// Defines structs of [`Layout`] fields.
macro_rules! layout {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $kind:ty,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        impl $crate::command::Layout for $name {
            const BYTES: usize = 0 $(+ <$kind as $crate::command::Layout>::BYTES)*;
            #[allow(unused_variables)]
            fn put(&self, out: &mut $crate::command::Out<'_>) {
                $($crate::command::Layout::put(&self.$field, out);)*
            }
            #[allow(unused_variables)]
            fn get(from: &mut $crate::command::In<'_>) -> Self {
                $name { $($field: $crate::command::Layout::get(from),)* }
            }
        }
    )*};
}
pub(crate) use layout;
