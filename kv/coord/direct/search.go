package direct

import (
	"context"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/client"
)

// look begins a search for a server at the endpoints, unless a search is under way, or has just
// found none. It does not wait.
func (c *Calls) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.endpoints == nil || c.mu.searched != nil || c.mu.closed ||
		time.Now().Before(c.mu.until) {
		return
	}
	var candidates []string
	for _, endpoint := range c.mu.endpoints() {
		if address := addressOf(endpoint, c.secure); address != "" {
			candidates = append(candidates, address)
		}
	}
	rand.Shuffle(len(candidates), func(i, j int) {
		candidates[i], candidates[j] = candidates[j], candidates[i]
	})
	slices.SortStableFunc(candidates, func(a, b string) int {
		switch slow := c.mu.addresses.slow(a); {
		case slow == c.mu.addresses.slow(b):
			return 0
		case slow:
			return 1
		}
		return -1
	})
	c.mu.searched = make(chan struct{})
	c.running.Go(func() { c.find(candidates) })
}

// lookBetter begins to try a server that was named as better than the current one, unless a search
// is under way or has just ended, or the server should not be tried now. It does not wait.
func (c *Calls) lookBetter(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.endpoints == nil || c.mu.searched != nil || c.mu.closed ||
		time.Since(c.mu.settled) < lookFirst || !c.mu.addresses.follow(address) {
		return
	}
	c.mu.searched = make(chan struct{})
	c.running.Go(func() {
		s := c.follow(address)
		c.mu.Lock()
		defer c.mu.Unlock()
		if s != nil {
			c.settleLocked(s)
		}
		c.endSearchLocked()
	})
}

// find tries servers one after the other. If a server names a better one that also answers, find
// chooses the better one.
func (c *Calls) find(candidates []string) {
	var found *server
	for _, address := range candidates {
		s, better := c.try(address)
		if s == nil {
			continue
		}
		found = s
		if better != "" && better != address {
			if s := c.follow(better); s != nil {
				found = s
			}
		}
		break
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settleLocked(found)
	c.endSearchLocked()
}

// follow tries a server that was named as better. It returns nil if the server does not serve,
// should not be tried now, or was left meanwhile.
func (c *Calls) follow(address string) *server {
	c.mu.Lock()
	follow := c.mu.addresses.follow(address)
	c.mu.Unlock()
	if !follow {
		return nil
	}
	s, _ := c.try(address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.addresses.noteFollowed(address, s != nil)
	if c.mu.addresses.slow(address) {
		return nil
	}
	return s
}

// settleLocked makes the server found by a search the current one. found is nil if no server was
// found.
func (c *Calls) settleLocked(found *server) {
	c.mu.settled = time.Now()
	if found == nil || c.mu.closed {
		c.mu.until = c.mu.settled.Add(pauseAfter(c.mu.failures))
		c.mu.failures++
		return
	}
	c.mu.failures, c.mu.until = 0, c.mu.settled.Add(lookFirst)
	if c.current.Swap(found) != found {
		c.logger.Info("coordination is called directly", "at", found.address)
	}
}

func (c *Calls) endSearchLocked() {
	close(c.mu.searched)
	c.mu.searched = nil
}

// try makes a call that a server answers if it takes calls without gRPC, serves the store, and
// knows a leader. The call names no key, so a voting member refuses it before it checks the user or
// reads. try returns nil if this server does not answer in that way.
func (c *Calls) try(address string) (_ *server, better string) {
	s := c.server(address)
	if s == nil {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(c.ctx, probeTimeout)
	defer cancel()
	better, err := s.conn().Call(ctx, pb.KV_Range_FullMethodName, &pb.RangeRequest{},
		&pb.RangeResponse{}, client.CallOptions{RequireLeader: true})
	if status.Code(err) != codes.InvalidArgument {
		return nil, ""
	}
	return s, better
}

// server returns the connection to a server, and makes it at the first use. It returns nil after
// Close.
func (c *Calls) server(address string) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil
	}
	if s := c.mu.servers[address]; s != nil {
		return s
	}
	if len(c.mu.servers) >= maxServers {
		c.forgetLocked()
	}
	s := &server{address: address}
	for i := range s.conns {
		s.conns[i] = client.NewBatchConn(client.BatchConfig{Dialer: c.dialer, Address: address,
			Client: c.clients[i], Stream: func() uint64 { return c.streams.Add(1) },
			MaxInFlight: maxInFlight})
	}
	c.mu.servers[address] = s
	return s
}

// forgetLocked closes the connection to one server other than the current one.
func (c *Calls) forgetLocked() {
	for address, s := range c.mu.servers {
		if s != c.current.Load() {
			delete(c.mu.servers, address)
			s.close()
			return
		}
	}
}

// addressOf returns the host and port of an endpoint. It returns "" if the endpoint has none, or
// requires TLS while the client does not use TLS.
func addressOf(endpoint string, secure bool) string {
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "http" && (u.Scheme != "https" || !secure) {
			return ""
		}
		endpoint = u.Host
	}
	if _, _, err := net.SplitHostPort(endpoint); err != nil {
		return ""
	}
	return endpoint
}
