package transport

import (
	"bytes"
	"testing"
)

// A buffer that gets more room keeps its bytes, and what is kept of it afterwards is small.
func TestBuffers(t *testing.T) {
	for range 3 { // the second time they may come from the pool
		var b []byte
		var want []byte
		for i, n := range []int{0, 1, 511, 512, 3000, 64 << 10, 128 << 10, 1, 1 << 20, 3 << 20} {
			piece := bytes.Repeat([]byte{byte(i)}, n)
			b = withRoom(b, n)
			if cap(b)-len(b) < n {
				t.Fatalf("room for %d bytes instead of %d", cap(b)-len(b), n)
			}
			b, want = append(b, piece...), append(want, piece...)
			if !bytes.Equal(b, want) {
				t.Fatalf("other bytes after %d were added", n)
			}
		}
	}
	for _, n := range []int{0, 100, bufferBytes, bufferBytes + 1, 1 << 20, 2 << 20, 3 << 20} {
		b := append(newBuffer(n), make([]byte, n)...)
		kept := release(b)
		if len(kept) > 0 || cap(kept) > bufferBytes || n <= bufferBytes && cap(kept) < n {
			t.Fatalf("of a buffer for %d bytes %d of %d are kept", n, len(kept), cap(kept))
		}
	}
}

// What has sent a large message keeps no large buffer, whether it was written at once or not.
func TestConnKeepsNoLargeBuffers(t *testing.T) {
	pairs(t, func(t *testing.T, opener, acceptor *Conn) {
		for _, size := range []int{100 << 10, 1 << 20, 8 << 20} {
			sent := make(chan error, 1)
			go func() {
				done, err := opener.TrySend(make([]byte, size))
				if err == nil && !done {
					err = opener.Send()
				}
				sent <- err
			}()
			if got, err := acceptor.Receive(); err != nil || len(got) != size {
				t.Fatalf("%d of %d bytes, %v", len(got), size, err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			kept := [][]byte{opener.frame, opener.records, opener.unsent}
			if s := opener.tlsBuffer; s != nil {
				kept = append(kept, s.plain, s.spare, s.kept)
			}
			for i, b := range kept {
				if cap(b) > bufferBytes {
					t.Errorf("buffer %d has %d bytes after a message of %d", i, cap(b), size)
				}
			}
		}
	})
}

// What TLS sends by itself between two messages comes before the next one, and not into the records
// of the one that is being written.
func TestSealKeepsWhatIsUnasked(t *testing.T) {
	server, client := mutual(t)
	addr, taken := listen(t, server)
	opener, err := Open(t.Context(), dial, addr, client, nil, []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer opener.Close()
	acceptor := <-taken
	defer acceptor.Close()
	s := opener.tlsBuffer
	for _, size := range []int{100, 100 << 10} {
		message := make([]byte, size)
		first, err := s.frame([][]byte{message}, len(message))
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(first)
		unasked := []byte("by itself")
		if _, err := s.Write(unasked); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, before) {
			t.Fatal("it went into the records that are being written")
		}
		s.release(first)
		second, err := s.frame([][]byte{message}, len(message))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(second, unasked) || len(second) != len(before)+len(unasked) {
			t.Fatalf("%d bytes, which begin with %q", len(second), second[:len(unasked)])
		}
		s.release(second)
	}
}
