package faults

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

// coordinators returns the addresses of the core's members.
func (e *environment) coordinators() []string {
	var all []string
	for _, s := range e.cluster.Cores {
		all = append(all, s.Address())
	}
	return all
}

// coordinate connects to the coordination service.
func (e *environment) coordinate() *coord.Client {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	c, err := coord.Connect(ctx, e.coordinators())
	e.must(err, "connect to the coordination service")
	e.Cleanup(func() {
		if err := c.Close(); err != nil {
			e.Errorf("close the client: %v", err)
		}
	})
	return c
}

// coordinationLeader returns the server that leads the coordination store.
func (e *environment) coordinationLeader(c *coord.Client) *fleet.Server {
	e.Helper()
	var leader *fleet.Server
	e.wait(30*time.Second, "the coordination store has a leader", func(ctx context.Context) error {
		for _, s := range e.cluster.Cores {
			limited, cancel := context.WithTimeout(ctx, time.Second)
			status, err := c.Etcd().Status(limited, s.Address())
			cancel()
			if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
				leader = s
				return nil
			}
		}
		return errors.New("no member says that it leads")
	})
	return leader
}

// TestLocksOutliveTheLeader kills the leader of the coordination store twice, while 1,000 sessions
// of many clients hold a lock each. No session loses its lock.
func TestLocksOutliveTheLeader(t *testing.T) {
	const (
		clients  = 20
		sessions = 50
		ttl      = 10 * time.Second
	)
	e := newEnvironment(t, 5*time.Minute, fleet.Layout{Cores: 3})
	e.must(e.cluster.Start(e.ctx), "start the core")
	first := e.coordinate()
	e.coordinationLeader(first)
	type holder struct {
		session *coord.Session
		lock    *coord.Lock
	}
	holders := make([]holder, clients*sessions)
	group, ctx := errgroup.WithContext(e.ctx)
	group.SetLimit(32)
	for i := range clients {
		client := e.coordinate()
		for j := range sessions {
			group.Go(func() error {
				session, err := client.NewSession(ctx, coord.TTL(ttl))
				if err != nil {
					return err
				}
				n := i*sessions + j
				lock, err := client.Mutex(fmt.Sprintf("lock%d", n)).Lock(ctx, session)
				holders[n] = holder{session, lock}
				return err
			})
		}
	}
	e.must(group.Wait(), "take the locks")
	for round := range 2 {
		victim := e.coordinationLeader(first)
		began := time.Now()
		e.must(victim.Kill(), "kill %s", victim.Name)
		successor := e.coordinationLeader(first)
		e.result("round %d: %s is killed, %s leads after %v", round+1, victim.Name, successor.Name,
			time.Since(began).Round(time.Millisecond))
		e.pass(2 * ttl)
		lost := 0
		for i, h := range holders {
			if err := h.lock.Err(); err != nil {
				lost++
				t.Errorf("lock %d is lost: %v; its session: %v", i, err, h.session.Err())
			}
		}
		e.result("round %d: %d of %d locks are lost", round+1, lost, len(holders))
		e.restart(victim)
	}
	// Check that the service agrees: the key of every lock belongs to the holder.
	for i, h := range holders {
		ctx, cancel := context.WithTimeout(e.ctx, 30*time.Second)
		r, err := first.Etcd().Get(ctx, h.lock.Key())
		cancel()
		e.must(err, "read lock %d", i)
		if len(r.Kvs) != 1 || coord.Token(r.Kvs[0].CreateRevision) != h.lock.Token() {
			t.Errorf("lock %d: the service has %v", i, r.Kvs)
		}
	}
}

// TestTakeover kills the process that leads an election. The next process leads within the time to
// live of the session and a second.
func TestTakeover(t *testing.T) {
	const ttl = 5 * time.Second
	e := newEnvironment(t, 5*time.Minute, fleet.Layout{Cores: 3})
	e.must(e.cluster.Start(e.ctx), "start the core")
	client := e.coordinate()
	e.coordinationLeader(client)
	binary, err := filepath.Abs(*program)
	e.must(err, "find the program")
	for round := range 5 {
		name := fmt.Sprintf("role%d", round)
		holder := exec.CommandContext(e.ctx, binary, "elect", name, "holder", "--ttl", ttl.String(),
			"--endpoints", strings.Join(e.coordinators(), ","))
		e.must(holder.Start(), "start the holder")
		ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
		e.wait(time.Minute, "the holder leads", func(ctx context.Context) error {
			leader, err := client.Election(name).Leader(ctx)
			if err == nil && !leader.Exists() {
				err = errors.New("no one leads")
			}
			return err
		})
		session, err := client.NewSession(ctx, coord.TTL(ttl))
		e.must(err, "open a session")
		killed := make(chan time.Time, 1)
		time.AfterFunc(time.Duration(round)*time.Second, func() {
			_ = holder.Process.Kill()
			killed <- time.Now()
		})
		leadership, err := client.Election(name).Campaign(ctx, session, []byte("successor"))
		e.must(err, "campaign")
		took := time.Since(<-killed)
		_ = holder.Wait() // the process was killed
		e.result("round %d: taken over %v after the kill", round+1, took.Round(time.Millisecond))
		if took > ttl+time.Second {
			t.Errorf("round %d: it took %v, the time to live is %v", round+1, took, ttl)
		}
		e.must(errors.Join(leadership.Resign(ctx), session.Close(ctx)), "resign")
		cancel()
	}
}
