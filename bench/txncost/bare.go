package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// bare is a minimal client with minimal servers. Each server only reads keys of a storage engine
// and sends the values, over one connection. The measurement shows the cost of a get, and of a
// snapshot over the same number of nodes, without a database.
type bare struct {
	servers []*bareServer
	conns   []net.Conn
	answer  []byte
}

const (
	bareServers = 3
	bareKeys    = 10
	bareKeySize = 4
)

type bareServer struct {
	db       *pebble.DB
	listener net.Listener
	serving  sync.WaitGroup
}

// startBare starts the servers, with data in directories of parent, and connects to them.
func startBare(ctx context.Context, parent string) (_ *bare, err error) {
	b := &bare{answer: make([]byte, bareKeys*len(value))}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	for i := range bareServers {
		s := &bareServer{}
		if s.db, err = pebble.Open(filepath.Join(parent, fmt.Sprint("bare", i)),
			&pebble.Options{Logger: errorsOnly{}}); err != nil {
			return nil, err
		}
		b.servers = append(b.servers, s)
		for key := range bareKeys {
			if err = s.db.Set(bareKey(nil, key), value, pebble.NoSync); err != nil {
				return nil, err
			}
		}
		if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
		s.serving.Go(s.serve)
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.listener.Addr().String())
		if err != nil {
			return nil, err
		}
		b.conns = append(b.conns, conn)
	}
	return b, nil
}

func (b *bare) close() {
	for _, c := range b.conns {
		_ = c.Close()
	}
	for _, s := range b.servers {
		if s.listener != nil {
			_ = s.listener.Close()
		}
		s.serving.Wait()
		_ = s.db.Close() // its data is deleted now
	}
}

// errorsOnly is a logger that logs only errors.
type errorsOnly struct{}

// Infof implements pebble.Logger.
func (errorsOnly) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (errorsOnly) Errorf(format string, args ...any) {
	pebble.DefaultLogger.Errorf(format,
		args...)
}

// Fatalf implements pebble.Logger.
func (errorsOnly) Fatalf(format string, args ...any) {
	pebble.DefaultLogger.Fatalf(format,
		args...)
}

func bareKey(to []byte, key int) []byte { return binary.BigEndian.AppendUint32(to, uint32(key)) }

// serve answers on the single connection. A request is the number of its keys and the keys. An
// answer is their values.
func (s *bareServer) serve() {
	conn, err := s.listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	var request, answer []byte
	for {
		n, err := r.ReadByte()
		if err != nil {
			return
		}
		request = append(request[:0], make([]byte, int(n)*bareKeySize)...)
		if _, err := io.ReadFull(r, request); err != nil {
			return
		}
		if answer, err = s.read(answer[:0], request); err != nil {
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

func (s *bareServer) read(answer, request []byte) ([]byte, error) {
	iter, err := s.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	for ; len(request) > 0 && err == nil; request = request[bareKeySize:] {
		if !iter.SeekGE(request[:bareKeySize]) {
			err = pebble.ErrNotFound
			break
		}
		var v []byte
		v, err = iter.ValueAndErr()
		answer = append(answer, v...)
	}
	if closeErr := iter.Close(); err == nil {
		err = closeErr
	}
	return answer, err
}

// ask returns an operation that asks a number of servers concurrently for a total number of keys.
func (b *bare) ask(servers, count int) func(context.Context, int) error {
	return func(_ context.Context, turn int) error {
		at := func(i int) net.Conn { return b.conns[(turn+i)%bareServers] }
		share := func(i int) int { return (count + i) / servers }
		var request []byte
		for i := range servers {
			request = append(request[:0], byte(share(i)))
			for key := range share(i) {
				request = bareKey(request, key)
			}
			if _, err := at(i).Write(request); err != nil {
				return err
			}
		}
		for i := range servers {
			if _, err := io.ReadFull(at(i), b.answer[:share(i)*len(value)]); err != nil {
				return err
			}
		}
		return nil
	}
}
