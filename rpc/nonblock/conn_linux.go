//go:build !race

package nonblock

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// most bounds the bytes that one call copies, which takes some ten microseconds. In that time other
// goroutines of the processor wait, and so does a garbage collection that begins.
const most = 64 << 10

// Conn is a TCP connection with such reads and writes. It is as safe for concurrent use as a
// net.Conn.
type Conn struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out transfer
	// waited is set if the last Read had to wait.
	waited atomic.Bool
}

// Waited reports whether the last Read had to wait for data.
func (c *Conn) Waited() bool { return c.waited.Load() }

// transfer is one direction of a connection.
type transfer struct {
	mu sync.Mutex
	// try does what it can of the call that has mu, and reports whether the call is complete.
	try func(fd uintptr) bool
	// left is the rest of the buffer to read into, or to write. done counts the bytes transferred,
	// errno is the error that stopped it; waits is set if it had to wait.
	left  []byte
	done  int
	errno syscall.Errno
	waits bool
}

// New wraps a TCP connection, which must not be used by itself afterwards.
func New(tcp *net.TCPConn) *Conn {
	c := &Conn{TCPConn: tcp}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	c.raw = raw
	c.in.try, c.out.try = c.in.read, c.out.write
	return c
}

// read reads once.
func (t *transfer) read(fd uintptr) bool {
	t.done, t.errno = call(syscall.SYS_READ, fd, t.left)
	t.waits = t.waits || t.errno == syscall.EAGAIN
	return t.errno != syscall.EAGAIN
}

// write writes all that is left.
func (t *transfer) write(fd uintptr) bool {
	for len(t.left) > 0 {
		n, errno := call(syscall.SYS_WRITE, fd, t.left)
		if errno != 0 {
			t.errno = errno
			return errno != syscall.EAGAIN
		}
		t.left, t.done = t.left[n:], t.done+n
	}
	t.errno = 0
	return true
}

// call makes one system call with a non-empty buffer. errno is 0 if it succeeded.
func call(number, fd uintptr, b []byte) (n int, errno syscall.Errno) {
	for {
		r, _, errno := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)))
		switch errno {
		case 0:
			return int(r), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// begin begins a call, which unlocks mu at its end.
func (t *transfer) begin(b []byte) {
	t.mu.Lock()
	t.left, t.done, t.errno, t.waits = b, 0, 0, false
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if c.raw == nil || len(b) == 0 {
		c.waited.Store(true)
		return c.TCPConn.Read(b)
	}
	t := &c.in
	t.begin(b[:min(len(b), most)])
	err := c.raw.Read(t.try)
	n, errno := t.done, t.errno
	if t.waits != c.waited.Load() {
		c.waited.Store(t.waits)
	}
	t.left = nil
	t.mu.Unlock()
	switch {
	case err != nil:
		return 0, c.failed("read", err)
	case errno != 0:
		return 0, c.failed("read", os.NewSyscallError("read", errno))
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	if c.raw == nil || len(b) == 0 || len(b) > most {
		return c.TCPConn.Write(b)
	}
	t := &c.out
	t.begin(b)
	err := c.raw.Write(t.try)
	n, errno := t.done, t.errno
	t.left = nil
	t.mu.Unlock()
	switch {
	case err != nil:
		return n, c.failed("write", err)
	case errno != 0:
		return n, c.failed("write", os.NewSyscallError("write", errno))
	}
	return n, nil
}

// failed returns an error in the form of package net.
func (c *Conn) failed(operation string, err error) error {
	var inner *net.OpError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &net.OpError{Op: operation, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(),
		Err: err}
}

// Write writes as much as a non-blocking socket takes without waiting. The error is the system's;
// EAGAIN: there is no room.
func Write(fd uintptr, b []byte) (n int, err error) {
	if len(b) == 0 || len(b) > most {
		return syscall.Write(int(fd), b)
	}
	n, errno := call(syscall.SYS_WRITE, fd, b)
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}
