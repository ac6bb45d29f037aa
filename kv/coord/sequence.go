package coord

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Sequence creates numbered keys: the numbers begin at 1, and each key gets the next one. No number
// is given twice, and no number is skipped.
type Sequence struct {
	client *Client
	name   string
}

// Sequence returns the sequence with a name.
func (c *Client) Sequence(name string) *Sequence { return &Sequence{client: c, name: name} }

// Numbered is a key of a sequence.
type Numbered struct {
	// Number is the number that the sequence gave to the key.
	Number uint64
	// Key is the key in the service. Keys sort as their numbers do.
	Key string
	// Value is the value of the key.
	Value []byte
	// Token is the revision at which the key was created.
	Token Token
}

func (q *Sequence) counter() string { return q.client.path("sequence", q.name) + "counter" }
func (q *Sequence) keys() string    { return q.client.path("sequence", q.name) + "keys/" }

// Create makes the next key of the sequence, with a value. Under a session the key lives as long as
// the session; with nil it stays until it is deleted.
//
// All calls of Create on one sequence write one counter, one after the other. Some hundreds of
// calls per second are possible. ErrOutcomeUnknown means that ctx ended before the outcome was
// known: the key may exist, or may be created later.
func (q *Sequence) Create(ctx context.Context, s *Session, value []byte) (Numbered, error) {
	const op = "create a numbered key"
	if err := checkName(op, q.name); err != nil {
		return Numbered{}, err
	}
	made, err := q.client.next(ctx, s, q.counter(), func(number uint64) string {
		return fmt.Sprintf("%s%016x", q.keys(), number)
	}, value)
	if err != nil {
		return Numbered{}, fail(op, q.name, err)
	}
	return made, nil
}

// next increments a counter, and creates the key for the number in the same transaction.
func (c *Client) next(ctx context.Context, s *Session, counter string, key func(uint64) string,
	value []byte) (Numbered, error) {
	var options []clientv3.OpOption
	if s != nil {
		if err := s.Err(); err != nil {
			return Numbered{}, err
		}
		var cancel context.CancelFunc
		ctx, cancel = s.within(ctx)
		defer cancel()
		options = append(options, clientv3.WithLease(s.lease))
	}
	r, err := c.get(ctx, counter)
	if err != nil {
		return Numbered{}, err
	}
	current := r.Kvs
	for {
		last, modified := uint64(0), int64(0)
		if len(current) > 0 {
			modified = current[0].ModRevision
			number, _, _ := strings.Cut(string(current[0].Value), " ")
			if last, err = strconv.ParseUint(number, 10, 64); err != nil {
				return Numbered{}, because(fmt.Sprintf("the counter %s holds %q, which is no number; "+
					"somebody else wrote it", counter, current[0].Value), ErrInvalidArgument)
			}
		}
		made := Numbered{Number: last + 1, Key: key(last + 1), Value: value}
		done, err := c.swap(ctx, counter, modified,
			strconv.FormatUint(made.Number, 10)+" "+c.nonce(),
			clientv3.OpPut(made.Key, string(value), options...))
		switch {
		case err != nil && s != nil:
			return Numbered{}, s.gone(err)
		case err != nil:
			return Numbered{}, err
		case done.done:
			made.Token = Token(done.revision)
			return made, nil
		}
		current = nil
		if done.current != nil {
			current = append(current, done.current)
		}
	}
}

// List reads all existing keys of the sequence, in the order of their numbers.
func (q *Sequence) List(ctx context.Context) ([]Numbered, error) {
	const op = "list"
	if err := checkName(op, q.name); err != nil {
		return nil, err
	}
	kvs, _, err := q.client.list(ctx, q.keys())
	if err != nil {
		return nil, fail(op, q.name, err)
	}
	all := make([]Numbered, 0, len(kvs))
	for _, kv := range kvs {
		number, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), q.keys()), 16, 64)
		if err != nil {
			continue // not a key of this sequence
		}
		all = append(all, Numbered{Number: number, Key: string(kv.Key), Value: kv.Value,
			Token: Token(kv.CreateRevision)})
	}
	return all, nil
}

// Delete deletes a key of the sequence. It returns no error if the key is gone. The key's number is
// not given again.
func (q *Sequence) Delete(ctx context.Context, n Numbered) error {
	return fail("delete", q.name, q.client.until(ctx, func(ctx context.Context) error {
		_, err := q.client.etcd.Delete(ctx, n.Key)
		return err
	}))
}
