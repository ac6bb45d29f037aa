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

// most bounds what one call copies: it takes some ten microseconds, in which the processor's
// goroutines wait, and a collection of garbage that begins.
const most = 64 << 10

// Conn is a TCP connection with such reads and writes. It is safe for concurrent use as far as a
// net.Conn is.
type Conn struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out transfer
	// waited: the last Read had to wait.
	waited atomic.Bool
}

// Waited says whether the last Read had to wait for what it has read.
func (c *Conn) Waited() bool { return c.waited.Load() }

// transfer is one direction of a connection.
type transfer struct {
	mu sync.Mutex
	// try does what it can of the call that has mu, and says whether that is over.
	try func(fd uintptr) bool
	// left is what it has still to read into, or to write. done is how much it has transferred, errno
	// why no more; waits: it had to wait.
	left  []byte
	done  int
	errno syscall.Errno
	waits bool
}

// New makes a connection of a TCP connection, which is not to be used beside it.
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

// call does one system call with a buffer that is not empty. errno is 0 if it succeeded.
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

// begin begins a call, whose end unlocks mu.
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

// failed is an error as package net has it.
func (c *Conn) failed(operation string, err error) error {
	var inner *net.OpError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &net.OpError{Op: operation, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(),
		Err: err}
}

// Write writes what can be written to a non-blocking socket without waiting. The error is the
// system's; EAGAIN: there is no room.
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
