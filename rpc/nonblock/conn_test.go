package nonblock

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair makes the two ends of a connection over loopback.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = one.Close()
		_ = other.Close()
	})
	return Wrap(one), Wrap(other)
}

// Whatever the sizes of writes and reads, and however slow the reader is: the bytes arrive as they
// were written, and then the end.
func TestBytesArrive(t *testing.T) {
	a, b := pair(t)
	random := rand.New(rand.NewPCG(1, 1))
	var want bytes.Buffer
	var writes [][]byte
	for range 300 {
		size := 1 + random.IntN(1<<random.IntN(19))
		piece := make([]byte, size)
		for i := range piece {
			piece[i] = byte(random.Uint32())
		}
		writes = append(writes, piece)
		want.Write(piece)
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for _, piece := range writes {
			if n, err := a.Write(piece); n != len(piece) || err != nil {
				t.Errorf("%d of %d bytes: %v", n, len(piece), err)
			}
		}
		_ = a.(interface{ CloseWrite() error }).CloseWrite()
	})
	var got bytes.Buffer
	for {
		piece := make([]byte, 1+random.IntN(200<<10))
		n, err := b.Read(piece)
		got.Write(piece[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	writer.Wait()
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes came that are not the %d that were written", got.Len(), want.Len())
	}
}

// Errors are those of package net.
func TestErrors(t *testing.T) {
	kinds := []struct {
		name string
		end  func(own, other net.Conn)
		read bool
		want error
	}{
		{"read, closed here", func(own, _ net.Conn) { _ = own.Close() }, true, net.ErrClosed},
		{"write, closed here", func(own, _ net.Conn) { _ = own.Close() }, false, net.ErrClosed},
		{"read, closed there", func(_, other net.Conn) { _ = other.Close() }, true, io.EOF},
		{"read, reset", func(_, other net.Conn) {
			_ = other.(interface{ SetLinger(int) error }).SetLinger(0)
			_ = other.Close()
		}, true, syscall.ECONNRESET},
		{"read, too late", func(own, _ net.Conn) { _ = own.SetReadDeadline(time.Unix(1, 0)) }, true,
			os.ErrDeadlineExceeded},
		{"write, too late", func(own, _ net.Conn) { _ = own.SetWriteDeadline(time.Unix(1, 0)) }, false,
			os.ErrDeadlineExceeded},
	}
	for _, c := range kinds {
		for _, waits := range []bool{false, true} {
			own, other := pair(t)
			if waits {
				timer := time.AfterFunc(10*time.Millisecond, func() { c.end(own, other) })
				defer timer.Stop()
			} else {
				c.end(own, other)
			}
			operation, call := "write", own.Write
			if c.read {
				operation, call = "read", own.Read
			}
			var err error
			for end := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(end); {
				_, err = call(make([]byte, 1024))
			}
			var inner *net.OpError
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", c.name, err)
			} else if errors.As(err, &inner) && inner.Op != operation {
				t.Errorf("%s: it is an error of %q", c.name, inner.Op)
			}
		}
	}
}

// Reads and writes may go on at once, and Close ends both.
func TestCloseEndsWhatWaits(t *testing.T) {
	a, _ := pair(t)
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("read: %v", err)
			}
		})
		waiting.Go(func() {
			var err error
			for err == nil {
				_, err = a.Write(make([]byte, 4096))
			}
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("write: %v", err)
			}
		})
	}
	timer := time.AfterFunc(20*time.Millisecond, func() { _ = a.Close() })
	defer timer.Stop()
	waiting.Wait()
}

// Waited says whether a Read found something at once.
func TestWaited(t *testing.T) {
	a, b := pair(t)
	c, ok := b.(*Conn)
	if !ok || c.Waited() {
		t.Skip("here connections do not know it")
	}
	read := make(chan error)
	go func() {
		_, err := io.ReadFull(b, make([]byte, 1))
		read <- err
	}()
	// The reader waits when it has tried: that is seen by nothing but that it does not come back.
	for range 3 {
		if _, err := a.Write([]byte("ab")); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		// The second byte is there.
		if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if c.Waited() {
			t.Error("it says that it has waited for what was there")
		}
		go func() {
			_, err := io.ReadFull(b, make([]byte, 1))
			read <- err
		}()
	}
	_ = a.Close()
	<-read
}
