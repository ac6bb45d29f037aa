package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded/console"
	"github.com/tidemarkdb/tidemark/deploy/embedded/examine"
	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// Server is one server in this process. It connects its parts: a member of the core, a data node,
// and the etcd API. Each part owns its state.
type Server struct {
	*environment
	member *coreMember
	node   *dataNode
	etcd   *etcdAPI
	// examiner looks for faults.
	examiner *examine.Examiner

	// clients and calls serve connections of requests.
	clients *rpc.BatchServer
	calls   *rpc.CallServer
	// cpu limits the processor time of clients, on all ports.
	cpu      *quota.CPULimiter
	listener net.Listener
	// http serves the HTTP address, and console is the web console there. They are nil without an HTTP
	// address. gateway is the etcd API as JSON. clientHTTP serves it on the server's main port.
	http       *web.Server
	console    *console.Console
	gateway    *web.Counted
	clientHTTP *web.Handed

	closing sync.Once
	closed  error // the error of Close
}

// ReloadCertificates reads the TLS files again now. Without it, a handshake notices within a second
// that the files have changed. After an error the former certificates stay in use.
func (s *Server) ReloadCertificates() error {
	if s.tls == nil {
		return nil
	}
	return s.tls.Reload()
}

// WaitReady waits until the server is ready, has failed, or the context ends.
func (s *Server) WaitReady(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, reason := s.Ready()
		if ok {
			return nil
		}
		select {
		case <-s.done:
			if err := s.Err(); err != nil {
				return err
			}
			return errors.New("the server was closed")
		case <-ctx.Done():
			return fmt.Errorf("%w while waiting for the server at %s: %s", context.Cause(ctx),
				s.config.Advertise, reason)
		case <-ticker.C:
		}
	}
}

// Close stops the server at once. Its leaderships are replaced by elections, as after a crash. Stop
// transfers them first. All acknowledged data is on disk. The context limits the time for requests
// under way.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.cancel()
		if s.http != nil {
			s.closed = errors.Join(s.closed, s.http.Close())
		}
		if s.console != nil {
			s.console.Close()
		}
		s.closed = errors.Join(s.closed, s.clientHTTP.End())
		s.gateway.Close()
		stopped := context.AfterFunc(ctx, s.rpc.Stop)
		s.rpc.Stop()
		stopped()
		s.calls.Close()
		s.closed = errors.Join(s.closed, s.release())
		s.ended()
	})
	return s.closed
}

// release releases all resources, in the reverse order of their opening.
func (s *Server) release() (err error) {
	s.cancel()
	if s.console != nil {
		s.console.Close()
	}
	if s.rpc != nil {
		err = s.clientHTTP.End()
		s.gateway.Close()
		s.rpc.Stop()
		s.calls.Close()
	} else if s.listener != nil {
		err = s.listener.Close()
	}
	s.running.Wait()
	if s.member.backups != nil {
		s.member.backups.Close()
	}
	if data := s.node.part.Load(); data != nil {
		err = errors.Join(err, data.close())
	}
	if core := s.member.part.Load(); core != nil {
		err = errors.Join(err, core.close())
	}
	if s.auth != nil {
		s.auth.Close()
	}
	if s.level != nil {
		s.level.Close()
	}
	if s.core != nil {
		s.core.Close()
	}
	if s.etcd.forwarder != nil {
		s.etcd.forwarder.Close()
	}
	if s.dialer != nil {
		err = errors.Join(err, s.dialer.Close())
	}
	if s.directory != nil {
		err = errors.Join(err, s.directory.Close())
	}
	return err
}
