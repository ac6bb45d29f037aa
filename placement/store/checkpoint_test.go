package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// leased is a core of three members with a lease of an hour, under which there is a key.
func leased(t *testing.T, run func(c *core)) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		clock := hlc.Monotonic(func() int64 { return int64(time.Since(began)) + 1 })
		c := newCore(t, 3, func(config *Config) {
			config.Monotonic, config.CheckpointAfter = clock, time.Minute
		})
		defer c.close()
		c.elect(c.members[0])
		do(t, c.members[0].store, Grant(5, uint64(time.Hour.Milliseconds())))
		do(t, c.members[0].store, writes(PutLeased([]byte("leased"), nil, 5)))
		run(c)
	})
}

// lasts says for how long the key is still there, in steps of a second.
func lasts(t *testing.T, m *member) time.Duration {
	t.Helper()
	began := time.Now()
	for get(t, m.store, "leased") != "-" {
		if time.Since(began) > 3*time.Hour {
			t.Fatal("the lease does not end")
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	return time.Since(began)
}

func between(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %v, expected from %v to %v", what, got, least, most)
	}
}

// A new leader goes on with a long lease from its last checkpoint.
func TestCheckpointShortensTheNextLeadersTerm(t *testing.T) {
	leased(t, func(c *core) {
		for range 5 {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			next := c.members[1]
			if c.leader == next {
				next = c.members[0]
			}
			next.catchUp()
			c.elect(next)
		}
		// 50 of 60 minutes have passed; each leader has lost a minute at most.
		between(t, "the rest", lasts(t, c.leader), 10*time.Minute, 16*time.Minute)
	})
}

// A renewal that was acknowledged counts under the next leader, also behind a checkpoint.
func TestRenewalTakesTheCheckpointBack(t *testing.T) {
	leased(t, func(c *core) {
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		if _, err := c.members[0].store.KeepAlive(context.Background(), 5); err != nil {
			t.Fatal(err)
		}
		c.members[1].catchUp()
		c.elect(c.members[1])
		between(t, "the term", lasts(t, c.members[1]), time.Hour, time.Hour+2*time.Minute)
	})
}

// A checkpoint that is in the log and not applied yet when the lease is renewed does not count
// afterwards either.
func TestRenewalBesideACheckpoint(t *testing.T) {
	leased(t, func(c *core) {
		time.Sleep(30 * time.Second)
		synctest.Wait()
		c.setLags(true)
		time.Sleep(time.Minute) // the leader proposes a checkpoint, and applies it later
		synctest.Wait()
		renewed := make(chan error, 1)
		go func() {
			_, err := c.members[0].store.KeepAlive(context.Background(), 5)
			renewed <- err
		}()
		synctest.Wait()
		c.setLags(false)
		synctest.Wait()
		if err := <-renewed; err != nil {
			t.Fatal(err)
		}
		c.members[1].catchUp()
		c.elect(c.members[1])
		between(t, "the term", lasts(t, c.members[1]), time.Hour, time.Hour+2*time.Minute)
	})
}

// A leader that stays renews without the log when no checkpoint stands.
func TestRenewalsOfShortLeasesStayOutOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 1, nil)
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		do(t, s, Grant(5, 10_000))
		before := c.proposedBytes()
		for range 100 {
			time.Sleep(3 * time.Second)
			if _, err := s.KeepAlive(context.Background(), 5); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.proposedBytes(); n != before {
			t.Errorf("%d bytes went into the log", n-before)
		}
	})
}
