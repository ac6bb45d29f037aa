package coord

import (
	"context"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// DoubleBarrier lets a number of participants begin together and end together. It can be used for
// several rounds: a participant that enters during a round waits for the next round.
type DoubleBarrier struct {
	client *Client
	name   string
	count  int
}

// DoubleBarrier returns the double barrier with a name, for count participants. All participants
// must give the same count, up to 100,000.
func (c *Client) DoubleBarrier(name string, count int) *DoubleBarrier {
	return &DoubleBarrier{client: c, name: name, count: count}
}

// Each participant has a key under members. When there are count participants, in the order of
// their creation, the first participant that sees this writes the key round. The value of round is
// the revision at which the last of the count participants was created. All participants that were
// created up to that revision belong to the round. The round is over when all of them have left.
// Then the key round is deleted.

func (d *DoubleBarrier) prefix() string   { return d.client.path("double-barrier", d.name) }
func (d *DoubleBarrier) members() string  { return d.prefix() + "members/" }
func (d *DoubleBarrier) roundKey() string { return d.prefix() + "round" }

// Participation is a participant's place in a round.
type Participation struct {
	barrier *DoubleBarrier
	held    *heldKey
	last    int64
}

// Enter waits until count participants have entered, and then returns to all of them. A participant
// whose session ends before that does not count. If ctx ends during the wait, the round may have
// begun with this participant. The others then see a participant that has left early.
func (d *DoubleBarrier) Enter(ctx context.Context, s *Session) (*Participation, error) {
	const op = "enter"
	switch {
	case d.name == "":
		return nil, checkName(op, d.name)
	case d.count < 1 || d.count > maxKeys:
		return nil, invalid(op, d.name, fmt.Sprintf("a barrier for %d: give a number from 1 to %d",
			d.count, maxKeys))
	}
	if err := s.Err(); err != nil {
		return nil, fail(op, d.name, err)
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	key := d.members() + s.unique()
	made, err := s.create(ctx, key, s.label)
	if err != nil {
		return nil, fail(op, d.name, err)
	}
	last, err := d.enter(ctx, key, made.revision)
	if err == nil {
		err = s.Err()
	}
	if err != nil {
		s.discard(key, false)
		return nil, fail(op, d.name, err)
	}
	return &Participation{barrier: d, held: s.hold(d.name, key, made.revision), last: last}, nil
}

// enter waits for the round of the participant that has a key, and fails if the key is deleted
// before there is one.
func (d *DoubleBarrier) enter(ctx context.Context, key string, created int64) (last int64,
	err error) {
	err = either(ctx, func(ctx context.Context) (err error) {
		last, err = d.begin(ctx, created)
		return err
	}, func(ctx context.Context) error {
		if err := d.client.awaitGone(ctx, key, created, created); err != nil {
			return err
		}
		return because("its key "+key+" was deleted by somebody else while it waited", ErrLost)
	})
	return last, err
}

// begin waits for the round of a participant that was created at a revision, and returns the
// revision of the round's last participant.
func (d *DoubleBarrier) begin(ctx context.Context, created int64) (last int64, err error) {
	c := d.client
	for {
		round, revision, err := d.round(ctx)
		if err != nil {
			return 0, err
		}
		switch {
		case round != nil && created <= lastOf(round):
			return lastOf(round), nil
		case round != nil: // the round is under way, or its participants are gone and it was not removed
			if err := d.end(ctx, round, revision); err != nil {
				return 0, err
			}
			continue
		}
		r, err := c.get(ctx, d.members(), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend),
			clientv3.WithLimit(int64(d.count)))
		if err != nil {
			return 0, err
		}
		if len(r.Kvs) < d.count {
			// The participant that completes the number sees it, and writes round.
			if err := c.awaitChange(ctx, d.roundKey(), revision, isPut); err != nil {
				return 0, err
			}
			continue
		}
		last := strconv.FormatInt(r.Kvs[d.count-1].CreateRevision, 10)
		// If the outcome is unknown, or another participant wrote first, the key round shows the result.
		err = c.call(ctx, func(ctx context.Context) error {
			_, err := c.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(d.roundKey()), "=", 0)).
				Then(clientv3.OpPut(d.roundKey(), last)).Commit()
			return err
		})
		if err != nil {
			if err := c.ended(ctx, err); err != nil {
				return 0, err
			}
		}
	}
}

func isPut(e *clientv3.Event) bool { return e.Type == clientv3.EventTypePut }

// round returns the key of the present round, or nil if there is none.
func (d *DoubleBarrier) round(ctx context.Context) (*mvccpb.KeyValue, int64, error) {
	r, err := d.client.get(ctx, d.roundKey())
	if err != nil {
		return nil, 0, err
	}
	if len(r.Kvs) == 0 {
		return nil, r.Header.Revision, nil
	}
	return r.Kvs[0], r.Header.Revision, nil
}

// lastOf returns the revision of the last participant of a round. It returns 0 if the value is not
// valid, so that the round counts as over.
func lastOf(round *mvccpb.KeyValue) int64 {
	last, err := strconv.ParseInt(string(round.Value), 10, 64)
	if err != nil || last < 0 {
		return 0
	}
	return last
}

// end waits for one of these events: all participants of a round have left, the participant whose
// key was watched has left, or the round was removed. It removes the round if all have left. The
// round existed at revision.
func (d *DoubleBarrier) end(ctx context.Context, round *mvccpb.KeyValue, revision int64) error {
	c := d.client
	r, err := c.get(ctx, d.members(), append(clientv3.WithLastCreate(), clientv3.WithKeysOnly(),
		clientv3.WithMaxCreateRev(lastOf(round)))...)
	if err != nil {
		return err
	}
	if lastOf(round) > 0 && len(r.Kvs) > 0 {
		return either(ctx, c.gone(string(r.Kvs[0].Key), r.Kvs[0].CreateRevision, r.Header.Revision),
			c.gone(d.roundKey(), round.CreateRevision, revision))
	}
	return c.until(ctx, func(ctx context.Context) error {
		_, err := c.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(d.roundKey()), "=", round.ModRevision)).
			Then(clientv3.OpDelete(d.roundKey())).Commit()
		return err
	})
}

// Held ends when the participant has left, or its session has ended.
func (p *Participation) Held() context.Context { return p.held.ctx }

// Leave ends this participation, and waits until all participants of the round have left, or their
// sessions have ended. If ctx ends during the wait, this participant has left nevertheless.
func (p *Participation) Leave(ctx context.Context) error {
	const op = "leave"
	d := p.barrier
	ctx, done := p.held.outlive(ctx)
	defer done()
	if err := p.held.release(ctx, op); err != nil {
		return err
	}
	for {
		round, revision, err := d.round(ctx)
		if err != nil {
			return fail(op, d.name, err)
		}
		if round == nil || lastOf(round) != p.last {
			return nil
		}
		if err := d.end(ctx, round, revision); err != nil {
			return fail(op, d.name, err)
		}
	}
}
