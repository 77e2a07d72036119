//! When the kernel received what is read.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};

use crate::Socket;

/// Room for the kernel's notes on what was received: one time stamp takes 32 bytes.
#[repr(align(8))]
struct Notes([u8; 64]);

impl Socket {
    /// Has the kernel note when each packet arrives (`SO_TIMESTAMPNS`), for
    /// [`receive_stamped`](Self::receive_stamped). It begins a moment after the first socket of the
    /// machine asks for it.
    ///
    /// # Errors
    ///
    /// None that is known of a TCP socket. A unix-domain socket takes it, and has no stamps.
    pub fn stamp_arrivals(&self) -> io::Result<()> {
        Ok(setsockopt(&self.socket, sockopt::ReceiveTimestampns, &true)?)
    }

    /// Receives as [`receive`](Self::receive) does, and says when the last byte of it arrived, where
    /// the kernel has noted that.
    ///
    /// # Errors
    ///
    /// As `receive`.
    pub fn receive_stamped(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<SystemTime>)> {
        let mut notes = Notes([0; 64]);
        let mut slices = [IoSliceMut::new(buffer)];
        let socket = self.socket.as_raw_fd();
        let received = recvmsg::<()>(socket, &mut slices, Some(&mut notes.0), MsgFlags::empty())?;
        let stamp = received.cmsgs()?.find_map(|note| match note {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
            _ => None,
        });
        // A stamp counts from 1970.
        Ok((received.bytes, stamp.map(|since| SystemTime::UNIX_EPOCH + since)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread::sleep;

    use super::*;
    use crate::{Events, Interest, Poller};

    /// Two ends of a connection, the first of which has arrivals stamped.
    fn stamped() -> (Socket, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Socket::connect(listener.local_addr().unwrap()).unwrap();
        client.stamp_arrivals().unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nodelay(true).unwrap();
        (client, server)
    }

    fn receive(client: &Socket) -> (usize, Option<SystemTime>) {
        let poller = Poller::new().unwrap();
        poller.add(client, 0, Interest::Readable).unwrap();
        poller.wait(&mut Events::with_capacity(1), Some(Duration::from_secs(5))).unwrap();
        client.receive_stamped(&mut [0; 64]).unwrap()
    }

    /// Stamping has begun when one is there.
    fn begin(client: &Socket, server: &mut impl Write) {
        for _ in 0..500 {
            server.write_all(b"x").unwrap();
            if receive(client).1.is_some() {
                return;
            }
            sleep(Duration::from_millis(1));
        }
        panic!("the kernel stamps nothing");
    }

    #[test]
    fn a_stamp_is_of_the_arrival_and_not_of_the_read() {
        let (client, mut server) = stamped();
        begin(&client, &mut server);
        let before = SystemTime::now();
        server.write_all(b"first").unwrap();
        let after = SystemTime::now();
        sleep(Duration::from_millis(20));
        let (bytes, stamp) = receive(&client);
        assert_eq!(bytes, 5);
        let stamp = stamp.unwrap();
        assert!(before <= stamp && stamp <= after, "{before:?} {stamp:?} {after:?}");
    }

    #[test]
    fn pieces_that_are_read_together_have_the_stamp_of_the_last() {
        let (client, mut server) = stamped();
        begin(&client, &mut server);
        server.write_all(b"one").unwrap();
        sleep(Duration::from_millis(20));
        let before = SystemTime::now();
        server.write_all(b"two").unwrap();
        sleep(Duration::from_millis(20));
        let (bytes, stamp) = receive(&client);
        assert_eq!(bytes, 6);
        assert!(stamp.unwrap() >= before);
    }

    #[test]
    fn the_end_of_the_stream_has_no_stamp_and_nothing_yet_is_would_block() {
        let (client, server) = stamped();
        let error = client.receive_stamped(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(server);
        assert_eq!(receive(&client), (0, None));
    }
}
