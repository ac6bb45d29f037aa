package store

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// room bounds the commands that were proposed and of which this member does not know yet what
// becomes of them, in number and in bytes. They are in the log of a leader that may be unable to
// commit, whether their callers still wait or not; if they came to more than Raft lets a leader
// have, it would have to give its leadership up.
type room struct {
	commands, bytes         *semaphore.Weighted
	maxCommands, maxBytes   int64
	heldCommands, heldBytes atomic.Int64
	refusals                atomic.Int64
}

func newRoom(commands, bytes int64) *room {
	return &room{
		commands: semaphore.NewWeighted(commands), bytes: semaphore.NewWeighted(bytes),
		maxCommands: commands, maxBytes: bytes,
	}
}

// enter waits for room for a command. Those that wait have their turns in their order.
func (r *room) enter(ctx context.Context, size int) error {
	err := r.commands.Acquire(ctx, 1)
	if err == nil {
		if err = r.bytes.Acquire(ctx, r.weight(size)); err != nil {
			r.commands.Release(1)
		}
	}
	if err != nil {
		r.refusals.Add(1)
		return fmt.Errorf("%w: %d commands with %d bytes wait already, the limits are %d and %d: %w",
			ErrOverloaded, r.heldCommands.Load(), r.heldBytes.Load(), r.maxCommands, r.maxBytes, err)
	}
	r.heldCommands.Add(1)
	r.heldBytes.Add(r.weight(size))
	return nil
}

func (r *room) leave(size int) {
	r.heldCommands.Add(-1)
	r.heldBytes.Add(-r.weight(size))
	r.bytes.Release(r.weight(size))
	r.commands.Release(1)
}

// weight is what a command takes. One that is larger than all there is has all of it.
func (r *room) weight(size int) int64 { return min(int64(size), r.maxBytes) }
