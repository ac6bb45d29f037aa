package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// Members of the core are replaced while their leader, or any other member, is killed again and
// again. No data moves and no data node has a fault, so every partition has to serve during the
// whole fault.

const (
	// offerPatience is the time for which the schedule waits until a core server with an empty
	// directory offers itself as a member. After this time the schedule goes on, and asks again later.
	offerPatience = 5 * time.Second
	// counting is the longest time for an answer of a core that has lost one member. It includes an
	// election, and a client's search for the new leader.
	counting = 20 * time.Second
)

// way is the way in which a member leaves the core.
type way int

const (
	// lost: the member's server is killed and its directory is removed. A new member takes its place
	// at the same address.
	lost way = iota
	// stopped: the same as lost, but after a clean stop.
	stopped
	// removed: the member is removed while its server runs, and a new directory at its address is
	// added.
	removed
	ways
)

func (x way) String() string {
	return [...]string{"is lost, and replaced", "is stopped, and replaced",
		"is removed, and another added"}[x]
}

// replacement is the replacement of one member of the core.
type replacement struct {
	address string
	how     way
	// former is the id of the member that leaves.
	former uint64
	// anew is true when the server has a new directory.
	anew bool
}

// act is the next action of a replacement.
type act int

const (
	// look: no action. The core does the rest, or the replacement is done.
	look act = iota
	// remove makes the core remove the former member. begin gives the former member's server an empty
	// directory. add makes the core add the new member. replace makes the new member take the former
	// member's place.
	remove
	begin
	add
	replace
)

// next returns the next action, given the state of the core.
func (r *replacement) next(core admin.Core) act {
	there, came := false, false
	for _, m := range core.Members {
		there = there || m.ID == r.former
		came = came || m.Address == r.address && m.ID != r.former
	}
	switch {
	case core.Change != nil:
		return look
	case !r.anew && r.how == removed && there:
		return remove
	case !r.anew:
		return begin
	case came:
		return look
	case there:
		return replace
	}
	return add
}

// wholeCore describes what is wrong with a core whose members should be at the given addresses,
// without the former member. The text is empty if nothing is wrong.
func wholeCore(core admin.Core, addresses []string, former uint64) string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if c := core.Change; c != nil {
		say("a change is under way: %s comes, %s goes: %s %s", c.Add, c.Remove, c.Step, c.WaitsFor)
	}
	if n := len(core.Members); n != len(addresses) {
		say("it has %d members, not %d", n, len(addresses))
	}
	leaders := 0
	at := map[string]int{}
	for _, m := range core.Members {
		at[m.Address]++
		switch {
		case former != 0 && m.ID == former:
			say("member %d is there still", m.ID)
		case m.Role != "voter":
			say("member %d at %s is %s", m.ID, m.Address, m.Role)
		case !m.Answers:
			say("member %d at %s does not answer", m.ID, m.Address)
		case m.Snapshot:
			say("member %d at %s is sent a snapshot", m.ID, m.Address)
		}
		if m.Leader {
			leaders++
		}
	}
	for _, address := range addresses {
		if at[address] != 1 {
			say("%d members are at %s", at[address], address)
		}
	}
	if leaders != 1 {
		say("%d of its members lead", leaders)
	}
	return strings.Join(wrong, "; ")
}

// coreAddresses returns the addresses of the core servers.
func (w *world) coreAddresses() []string {
	var list []string
	for _, s := range w.servers[:cores] {
		list = append(list, s.Address())
	}
	return list
}

// replaceMember replaces a member of the core.
func replaceMember(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	server := anyCore(random)
	r := &replacement{address: w.servers[server].Address(), how: way(random.IntN(int(ways)))}
	what := fmt.Sprintf("member %s of the core %v", w.servers[server].Name, r.how)
	err := w.ask(what, func(ctx context.Context, c *kv.Client) error {
		core, err := admin.New(c).Core(ctx)
		for _, m := range core.Members {
			if m.Address == r.address {
				r.former = m.ID
				if m.Leader {
					what += ", the leader"
				}
			}
		}
		if err == nil && r.former == 0 {
			err = fmt.Errorf("none of the members %+v is at %s", core.Members, r.address)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := w.advance(r, server, offerPatience); err != nil {
		return nil, err
	}
	return &fault{what: what, effect: effect{gone: servers(0, 1, 2)},
		next: between(random, 50*ms, 1500*ms),
		again: func() (time.Duration, error) {
			killed := anyCore(random)
			w.journal.note("meanwhile killed %s", w.names([]int{killed}))
			if err := w.kill([]int{killed}); err != nil {
				return 0, err
			}
			if err := w.startAll([]int{killed}); err != nil {
				return 0, err
			}
			return between(random, 300*ms, 6*time.Second), w.advance(r, server, time.Second)
		},
		end: func() error { return w.settleCore(what, r, server, random) }}, nil
}

// advance takes the next actions of a replacement, until the core does the rest or the patience
// ends. If the core does not answer, the next call tries again.
func (w *world) advance(r *replacement, server int, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * ms) {
		wants, err := begin, error(nil)
		if r.anew || r.how == removed {
			err = w.askFor(patience, func(ctx context.Context, c *kv.Client) error {
				core, err := admin.New(c).Core(ctx)
				if err != nil {
					return err
				}
				former := fmt.Sprint(r.former)
				switch wants = r.next(core); wants {
				case remove:
					return admin.New(c).ChangeCore(ctx, "", former)
				case add:
					return admin.New(c).ChangeCore(ctx, r.address, "")
				case replace:
					return admin.New(c).ChangeCore(ctx, r.address, former)
				}
				return nil
			})
		}
		switch {
		case err == nil && wants == begin:
			if err := w.newMember(r, server); err != nil {
				return err
			}
		case err == nil && (wants == replace || wants == add || wants == look && r.anew):
			return nil
		}
		if time.Now().After(deadline) {
			if err != nil {
				w.journal.note("the core's members do not change yet: %v", err)
			}
			return nil
		}
	}
}

// newMember gives a core server an empty directory.
func (w *world) newMember(r *replacement, server int) error {
	if r.how == stopped {
		w.stop(server)
	}
	r.anew = true
	w.journal.note("%s has an empty directory", w.names([]int{server}))
	return w.beginAnew(server)
}

// settleCore waits until a replacement is done. Then it kills another member: the core can work
// without that member only if the new member counts.
func (w *world) settleCore(what string, r *replacement, server int, random *rand.Rand) error {
	if !w.awaitCore(what, r.former, migrationPatience, func() error {
		return w.advance(r, server, time.Second)
	}) {
		return nil
	}
	other := (server + 1 + random.IntN(cores-1)) % cores
	w.journal.note("the core does without %s", w.names([]int{other}))
	if err := w.kill([]int{other}); err != nil {
		return err
	}
	deadline := time.Now().Add(counting)
	var err error
	for {
		// The change is recorded, which needs a quorum.
		err = w.askFor(counting, func(ctx context.Context, c *kv.Client) error {
			for _, delay := range []time.Duration{repairDelay + time.Second, repairDelay} {
				if _, err := admin.New(c).LimitPlacement(ctx,
					admin.PlacementSettings{RepairDelay: delay}); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil || time.Now().After(deadline) {
			break
		}
		time.Sleep(100 * ms)
	}
	if err != nil {
		w.proof.Violation("%s: without %s the core does not answer, so the newcomer does not count: %v",
			what, w.servers[other].Name, err)
	}
	return w.startAll([]int{other})
}

// awaitCore waits until the core is whole without the former member. If this takes longer than the
// patience, awaitCore records a violation. If press is not nil, it is called before each look. An
// error of press is a violation, too.
func (w *world) awaitCore(what string, former uint64, patience time.Duration,
	press func() error) bool {
	wrong := "it was not looked at"
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * ms) {
		if press != nil {
			if err := press(); err != nil {
				w.proof.Violation("%s: %v", what, err)
				return false
			}
		}
		err := w.askFor(5*time.Second, func(ctx context.Context, c *kv.Client) error {
			core, err := admin.New(c).Core(ctx)
			if err == nil {
				wrong = wholeCore(core, w.coreAddresses(), former)
			}
			return err
		})
		if err != nil {
			wrong = err.Error()
		}
		if wrong == "" {
			return true
		}
	}
	w.proof.Violation("%s: %v after everything was whole the core is not: %s", what, patience, wrong)
	return false
}

// askFor is ask with the given patience.
func (w *world) askFor(patience time.Duration, do func(context.Context, *kv.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := kv.Open(ctx, w.cluster.Endpoints())
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, client), client.Close())
}
