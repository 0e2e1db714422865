//! Error numbers as the application sees them.

use core::fmt;

use hermit_abi::errno as abi;

/// An error number of `hermit-abi`, positive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// Not an open descriptor, or not open for this.
    pub const BADF: Self = Self(abi::EBADF);
    /// Exists already.
    pub const EXIST: Self = Self(abi::EEXIST);
    /// An address that does not allow the access.
    pub const FAULT: Self = Self(abi::EFAULT);
    /// An argument makes no sense, or a buffer is too small.
    pub const INVAL: Self = Self(abi::EINVAL);
    /// The other side does not keep to the protocol.
    pub const IO: Self = Self(abi::EIO);
    /// Is a directory.
    pub const ISDIR: Self = Self(abi::EISDIR);
    /// Too many open files.
    pub const MFILE: Self = Self(abi::EMFILE);
    /// A path is too long.
    pub const NAMETOOLONG: Self = Self(abi::ENAMETOOLONG);
    /// No such file or directory.
    pub const NOENT: Self = Self(abi::ENOENT);
    /// Out of memory.
    pub const NOMEM: Self = Self(abi::ENOMEM);
    /// Not offered.
    pub const NOSYS: Self = Self(abi::ENOSYS);
    /// A component of a path is a file.
    pub const NOTDIR: Self = Self(abi::ENOTDIR);
    /// A value does not fit its type.
    pub const OVERFLOW: Self = Self(abi::EOVERFLOW);
    /// The tree is read-only.
    pub const ROFS: Self = Self(abi::EROFS);

    /// The error of this number, as a host tells it; a number that is none becomes −EIO.
    pub const fn from_number(number: i32) -> Self {
        match number {
            1..4096 => Self(number),
            _ => Self::IO,
        }
    }

    /// The positive number.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The value that a system call returns: the negative number.
    pub const fn negative(self) -> i32 {
        -self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {}", self.0)
    }
}

/// Turns a result into what a system call returns.
pub trait AbiResult {
    /// The value, or the negative error number; a value that does not fit is −EOVERFLOW.
    fn to_abi<R: TryFrom<i64> + From<i8>>(self) -> R;
}

impl<T: TryInto<i64>> AbiResult for Result<T, Errno> {
    fn to_abi<R: TryFrom<i64> + From<i8>>(self) -> R {
        let value = self.and_then(|value| value.try_into().map_err(|_| Errno::OVERFLOW));
        let value = value.unwrap_or_else(|errno| i64::from(errno.negative()));
        R::try_from(value)
            .or_else(|_| R::try_from(i64::from(Errno::OVERFLOW.negative())))
            .unwrap_or_else(|_| R::from(-1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_host_are_checked() {
        assert_eq!(Errno::from_number(abi::ENOSPC).negative(), -abi::ENOSPC);
        for number in [0, -1, 4096, i32::MIN] {
            assert_eq!(Errno::from_number(number), Errno::IO);
        }
    }

    #[test]
    fn results_become_numbers() {
        assert_eq!(Ok::<usize, Errno>(7).to_abi::<isize>(), 7);
        assert_eq!(Err::<usize, Errno>(Errno::ROFS).to_abi::<i32>(), -30);
        assert_eq!(Ok::<i64, Errno>(1 << 40).to_abi::<i32>(), -abi::EOVERFLOW);
        assert_eq!(
            Ok::<u64, Errno>(u64::MAX).to_abi::<i64>(),
            -i64::from(abi::EOVERFLOW)
        );
    }
}
