//! The calls that need a network or other things that Dolmen does not have: they say so.
//!
//! They have to exist, because std refers to them from code that a program may keep without ever
//! calling it.

use hermit_abi::errno::ENOSYS;

/// Defines calls that return `-ENOSYS` whatever they are given. A caller's arguments stay in
/// registers that the callee may ignore, so the signatures need not name them.
macro_rules! unsupported {
    ($($name:ident -> $result:ty;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: not offered, −ENOSYS.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> $result {
                <$result>::from(-ENOSYS)
            }
        )*
    };
}

unsupported! {
    sys_socket -> i32;
    sys_listen -> i32;
    sys_shutdown -> i32;
    sys_shutdown_socket -> i32;
    sys_bind -> i32;
    sys_connect -> i32;
    sys_accept -> i32;
    sys_getsockname -> i32;
    sys_getpeername -> i32;
    sys_send -> i64;
    sys_sendto -> i64;
    sys_recv -> i64;
    sys_recvfrom -> i64;
    sys_getsockopt -> i32;
    sys_setsockopt -> i32;
    sys_ioctl -> i32;
    sys_fcntl -> i32;
    sys_poll -> i32;
    sys_eventfd -> i32;
    sys_network_init -> i32;
    sys_getaddrbyname -> i32;
    sys_sem_init -> i32;
    sys_sem_destroy -> i32;
    sys_sem_post -> i32;
    sys_sem_trywait -> i32;
    sys_sem_timedwait -> i32;
    sys_notify -> i32;
    sys_add_queue -> i32;
    sys_wait -> i32;
    sys_init_queue -> i32;
    sys_destroy_queue -> i32;
}

/// Name look-up: no names are known.
#[unsafe(no_mangle)]
pub extern "C" fn sys_getaddrinfo() -> i32 {
    hermit_abi::EAI_NONAME
}

/// Frees nothing: [`sys_getaddrinfo`] returns nothing.
#[unsafe(no_mangle)]
pub extern "C" fn sys_freeaddrinfo() {}
