package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// members changes the members of the core, several times in turn, while other faults happen. A
// member whose disk was lost is replaced by the server with an empty disk at its address. If there
// is no such member, a candidate joins, in place of a member or besides the others, or a member
// leaves.
type members struct {
	// Which is an index into the members and into the candidates, modulo their numbers.
	Which int
	Times int `most:"1000"`
	Every time.Duration
}

var changesOfMembers = register("members", 0, 0, func(d *Dice) members {
	return members{Which: d.IntN(100), Times: d.Of(1, 2, 2, 3, 5),
		Every: d.Between(500*time.Millisecond, 8*time.Second)}
})

// Begin implements Effect. A goroutine calls the core, because the core may be cut off.
func (f members) Begin(w *World) (string, func() string) {
	if !w.mayChangeMembers() {
		return "the core's members stay: one of them lost its disk, and it has too few", nil
	}
	w.asking(func(ctx context.Context, client *kv.Client) {
		for i := range f.Times {
			if i > 0 && !sleep(ctx, f.Every) {
				return
			}
			w.Event("%s", f.one(ctx, w, client, i))
		}
	})
	return "the core's members begin to change", nil
}

// asking runs do with a client of its own in a goroutine. At the end of the schedule the context of
// do ends.
func (w *World) asking(do func(context.Context, *kv.Client)) {
	w.background(func(done <-chan struct{}) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-done:
				cancel()
			case <-ctx.Done():
			}
		}()
		client, err := w.Cluster.Open(ctx)
		if err != nil {
			return
		}
		defer client.Close()
		do(ctx, client)
	})
}

// one makes one change, and describes it.
func (f members) one(ctx context.Context, w *World, client *kv.Client, turn int) string {
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	core, err := admin.New(client).Core(ctx)
	if err != nil || len(core.Members) == 0 {
		return fmt.Sprintf("the core's members stay: %v", err)
	}
	add, remove := f.choose(w, core, turn)
	if add == "" && remove == "" {
		return "the core's members stay: no other server offers itself"
	}
	if err := admin.New(client).ChangeCore(ctx, add, remove); err != nil {
		return fmt.Sprintf("core member %q does not come, nor does %q go: %v", add, remove, err)
	}
	w.count("changes of the core's members")
	return fmt.Sprintf("core member %q comes, and %q goes", add, remove)
}

// choose says which server joins and which member leaves; empty: none.
func (f members) choose(w *World, core admin.Core, turn int) (add, remove string) {
	offers := func(address string) bool {
		return slices.ContainsFunc(core.Candidates,
			func(x admin.CoreCandidate) bool { return x.Address == address })
	}
	for _, m := range core.Members {
		if offers(m.Address) { // the server at this address has an empty disk now
			return m.Address, fmt.Sprint(m.ID)
		}
	}
	which := f.Which + turn
	member := core.Members[which%len(core.Members)]
	switch n := len(core.Members); {
	case len(core.Candidates) == 0 && n > 3:
		return "", fmt.Sprint(member.ID)
	case len(core.Candidates) == 0:
		return "", ""
	case n > 3 && which%5 == 0:
		return "", fmt.Sprint(member.ID)
	case n < 3 || n < 5 && which%3 == 0:
		return core.Candidates[which%len(core.Candidates)].Address, ""
	}
	return core.Candidates[which%len(core.Candidates)].Address, fmt.Sprint(member.ID)
}

// mayChangeMembers says whether the core's members may change, and records that they do. If the
// core began with one member and a server has lost its disk, the members may not change: the only
// member could be the server that lost its disk.
func (w *World) mayChangeMembers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.wiped) > 0 && w.cores == 1 {
		return false
	}
	w.mu.membersChanged = true
	return true
}

// checkMembers waits until no change of the core's members is under way, and all members answer.
// When the cluster is whole again, all changes must come to an end. If a server has lost its disk,
// checkMembers cancels an unfinished addition.
func (w *World) checkMembers(ctx context.Context) {
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		w.Violation("looking for the core's members: %v", err)
		return
	}
	defer client.Close()
	var core admin.Core
	for ctx.Err() == nil {
		if core, err = admin.New(client).Core(ctx); err == nil && core.Change == nil &&
			w.allAnswer(core) {
			return
		}
		if c := core.Change; err == nil && c != nil && c.Add != "" && w.anyWiped() {
			_ = admin.New(client).ChangeCore(ctx, "", c.Add)
		}
		sleep(ctx, 500*time.Millisecond)
	}
	w.Violation("the cluster is whole again, and the core's members do not settle: %+v, under way "+
		"%+v, %v", core.Members, core.Change, err)
}

// allAnswer says whether all members answer and are voters, except members that lost their disks,
// and whether as many servers run a member as there are members with disks.
func (w *World) allAnswer(core admin.Core) bool {
	lost := 0
	running := 0
	for i, address := range w.Cluster.Endpoints() {
		p := w.Cluster.Process(i)
		if p != nil && p.CoreMember() {
			running++
		}
		for _, m := range core.Members {
			if m.Address != address {
				continue
			}
			if !m.Answers && w.isWiped(i) {
				lost++
			} else if !m.Answers || m.Role != "voter" {
				return false
			}
		}
	}
	return running == len(core.Members)-lost
}
