package execute

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/command"
)

// Settle sends the outcomes to the callers.
func (x *Executor) Settle(all []Known) {
	for _, k := range all {
		x.budget.Leave(k.size)
		x.machine.Release(k.reserved)
		k.applied = k.outcome.err == nil
		k.pending.outcome <- k.outcome
		close(k.over)
	}
	x.groupsSettled(all)
}

// lose tells the callers of commands that the outcome is unknown.
func (x *Executor) lose(lost []*pending) {
	for _, p := range lost {
		x.Settle([]Known{{p, outcome{err: fmt.Errorf("%w: this member stopped leading %s at term %d",
			command.ErrOutcomeUnknown, x.config.Name, p.term)}}})
	}
}

func (x *Executor) takePendingLocked(which func(*pending) bool) []*pending {
	var taken []*pending
	for request, p := range x.mu.pending {
		if which(p) {
			taken = append(taken, p)
			delete(x.mu.pending, request)
		}
	}
	return taken
}

// Awaits reports whether a command is pending here.
func (x *Executor) Awaits(id ID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.pending[id] != nil
}
