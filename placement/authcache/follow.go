package authcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// minFollowPause and maxFollowPause bound the pause before another member is asked after a
	// stream has ended; the pause doubles while none answers.
	minFollowPause = 50 * time.Millisecond
	maxFollowPause = time.Second
	// minAsk is the least time between two questions.
	minAsk = 50 * time.Millisecond
	// maxAsked bounds the questions without an answer.
	maxAsked = 32
	// patience is for how many times AskEvery a question may have no answer before another member
	// is asked.
	patience = 3
	// maxTableBytes bounds the records of one update.
	maxTableBytes = 256 << 20
)

// Run follows the core until ctx ends.
func (g *Cache) Run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var stopFollowing context.CancelFunc
	for {
		_ = g.settle(false) // logged; the core sends the mark again
		g.mu.Lock()
		follow := g.mu.mark.On || g.mu.wanted.On
		g.mu.Unlock()
		switch {
		case follow && stopFollowing == nil:
			inner, stop := context.WithCancel(ctx)
			stopFollowing = stop
			following.Go(func() {
				defer stop()
				g.follow(inner)
			})
		case !follow && stopFollowing != nil:
			stopFollowing()
			following.Wait()
			stopFollowing = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-g.news:
		}
	}
}

// follow follows the core, a member at a time.
func (g *Cache) follow(ctx context.Context) {
	pause := minFollowPause
	silent := false
	for ctx.Err() == nil {
		answered, err := g.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if answered {
			pause, silent = minFollowPause, false
		}
		if !g.current() && !silent {
			silent = true
			g.config.Logger.Warn("this server hears nothing of users and roles from the core, and "+
				"refuses clients' requests meanwhile", "error", err)
		}
		_ = backoff.Sleep(ctx, pause)
		pause = min(2*pause, maxFollowPause)
	}
}

// stream follows one member. answered reports that it has answered a question.
func (g *Cache) stream(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &following{cache: g, asks: make(chan uint64)}
	var asking sync.WaitGroup
	asking.Go(func() { f.ask(ctx, cancel) })
	err = g.config.Source.FollowAuthority(ctx, f.asks, f.take)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	asking.Wait()
	return f.answered(), err
}

// following is one stream.
type following struct {
	cache *Cache
	asks  chan uint64

	// users and roles hold the records received so far, and state the newest complete version.
	// fresh is set if records have come since; size is their size in bytes. Only take uses these.
	users map[string]*storepb.UserRecord
	roles map[string]*storepb.RoleRecord
	state *authority.State
	fresh bool
	bytes int

	mu struct {
		sync.Mutex
		// asked holds the times of the questions without an answer; the first of them has the
		// number after done.
		asked []int64
		done  uint64
	}
}

func (f *following) answered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.done > 0
}

var errSilent = errors.New("a member of the core has not answered in time")

// ask sends a question at once, and then every Config.AskEvery, and also when it is urged to, but
// no more often than minAsk, because any client can send tokens that the server does not know.
func (f *following) ask(ctx context.Context, end context.CancelCauseFunc) {
	every := f.cache.config.AskEvery
	urged := int64(math.MinInt64)
	for {
		now := f.cache.config.Monotonic()
		f.mu.Lock()
		if len(f.mu.asked) > 0 && time.Duration(now-f.mu.asked[0]) > patience*every {
			f.mu.Unlock()
			end(errSilent)
			return
		}
		number := uint64(0)
		if len(f.mu.asked) < maxAsked {
			// The time is taken before the question is sent: its answer includes everything
			// acknowledged before that.
			f.mu.asked = append(f.mu.asked, now)
			number = f.mu.done + uint64(len(f.mu.asked))
		}
		f.mu.Unlock()
		if number != 0 {
			late := time.NewTimer(patience * every)
			select {
			case <-ctx.Done():
				late.Stop()
				return
			case <-late.C:
				end(errSilent)
				return
			case f.asks <- number:
				late.Stop()
			}
		}
		if backoff.Sleep(ctx, min(minAsk, every)) != nil {
			return
		}
		urge := f.cache.urge
		if urged != math.MinInt64 && now-urged < int64(every) {
			urge = nil
		}
		next := time.NewTimer(every)
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
		case <-urge:
			next.Stop()
			urged = f.cache.config.Monotonic()
		}
	}
}

// take processes an update.
func (f *following) take(u *clusterpb.AuthorityUpdate) error {
	if err := f.merge(u); err != nil {
		return err
	}
	if u.More {
		return nil
	}
	f.bytes = 0
	if err := f.renew(u); err != nil {
		return err
	}
	f.mu.Lock()
	asked := int64(0)
	n := int64(u.Answers) - int64(f.mu.done)
	if n > int64(len(f.mu.asked)) {
		f.mu.Unlock()
		return fmt.Errorf("it answers ask %d, which was not asked", u.Answers)
	}
	if n > 0 {
		asked = f.mu.asked[n-1]
		f.mu.asked, f.mu.done = slices.Delete(f.mu.asked, 0, int(n)), u.Answers
	}
	f.mu.Unlock()
	f.cache.hear(f.state, u.Index, n > 0, asked)
	return nil
}

// merge adds the records of an update.
func (f *following) merge(u *clusterpb.AuthorityUpdate) error {
	if f.users == nil {
		f.users, f.roles = map[string]*storepb.UserRecord{}, map[string]*storepb.RoleRecord{}
	}
	for _, r := range u.Users {
		f.fresh = true
		f.bytes += len(r.Name) + len(r.Record)
		if r.Record == nil {
			delete(f.users, r.Name)
			continue
		}
		record := &storepb.UserRecord{}
		if err := proto.Unmarshal(r.Record, record); err != nil {
			return fmt.Errorf("the record of user %q is malformed: %w", r.Name, err)
		}
		f.users[r.Name] = record
	}
	for _, r := range u.Roles {
		f.fresh = true
		f.bytes += len(r.Name) + len(r.Record)
		if r.Record == nil {
			delete(f.roles, r.Name)
			continue
		}
		record := &storepb.RoleRecord{}
		if err := proto.Unmarshal(r.Record, record); err != nil {
			return fmt.Errorf("the record of role %q is malformed: %w", r.Name, err)
		}
		f.roles[r.Name] = record
	}
	if f.bytes > maxTableBytes {
		return fmt.Errorf("users and roles have more than %d bytes", maxTableBytes)
	}
	return nil
}

// renew makes a new state of a complete update, if anything has changed.
func (f *following) renew(u *clusterpb.AuthorityUpdate) error {
	if f.state != nil && !f.fresh && f.state.Enabled() == u.Enabled &&
		f.state.Revision() == u.Revision && string(f.state.Key()) == string(u.Key) {
		return nil
	}
	state, err := authority.New(&storepb.AuthRecord{Enabled: u.Enabled, Revision: u.Revision,
		Key: u.Key}, maps.Clone(f.users), maps.Clone(f.roles))
	if err != nil {
		return err
	}
	f.state, f.fresh = state, false
	return nil
}

// hear uses a version of users and roles. If it answers a question, it is complete up to that
// question.
func (g *Cache) hear(state *authority.State, index uint64, answers bool, asked int64) {
	g.mu.Lock()
	first := false
	if answers || g.mu.heard != nil {
		// Before the first answer the records are just as new, but nothing proves it yet.
		g.mu.heard = state
		g.showLocked()
	}
	if answers {
		first = !g.current()
		g.until.Store(asked + int64(g.config.Grace))
		g.index.Store(index)
	}
	g.mu.Unlock()
	if first {
		signal(g.news)
	}
}
