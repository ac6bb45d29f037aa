package coord

import "context"

// Election elects one leader among its candidates. Candidates become leaders in the order in which
// they began to campaign.
type Election struct {
	client *Client
	name   string
}

// Election returns the election with a name.
func (c *Client) Election(name string) *Election { return &Election{client: c, name: name} }

func (e *Election) prefix() string { return e.client.path("election", e.name) }

// Campaign waits until this candidate leads, or until ctx or the session ends. Others can read
// proposal (Leader, Observe). It may be an address, for instance.
func (e *Election) Campaign(ctx context.Context, s *Session, proposal []byte) (*Leadership, error) {
	const op = "campaign"
	if err := checkName(op, e.name); err != nil {
		return nil, err
	}
	keys := e.prefix()
	h, err := lockQueue{name: e.name, keys: keys, before: keys}.enter(ctx, s, string(proposal))
	if err != nil {
		return nil, fail(op, e.name, err)
	}
	return &Leadership{h}, nil
}

// Leadership is the state of being the leader.
type Leadership struct{ held *heldKey }

// Held returns a context that ends with the leadership: when the leader resigns, its session ends,
// or its key is deleted. context.Cause returns the reason.
func (l *Leadership) Held() context.Context { return l.held.ctx }

// Err returns nil while the candidate leads. Unlike Held it reads the clock, as Session.Err does.
func (l *Leadership) Err() error { return l.held.err() }

// Token is higher than the token of every earlier leader.
func (l *Leadership) Token() Token { return Token(l.held.created) }

// Key is the key that stands for the leadership in the service.
func (l *Leadership) Key() string { return l.held.key }

// Proclaim replaces the proposal.
func (l *Leadership) Proclaim(ctx context.Context, proposal []byte) error {
	return l.held.set(ctx, "proclaim", string(proposal))
}

// Resign ends the leadership, and the next candidate leads. If the leadership was lost before,
// Resign returns an error. ctx may be the context that Held returns, or a child of it.
func (l *Leadership) Resign(ctx context.Context) error { return l.held.release(ctx, "resign") }
