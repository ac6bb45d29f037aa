package passwords

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/tidemarkdb/tidemark/placement/fairshare"
)

const (
	waitingPerParty = 64
	waitingInAll    = 4096
	// dearer is by how much the cost of a stored hash may exceed Config.Cost: a hash can come from
	// another system, and each step doubles the time.
	dearer = 4
)

// ErrPassword says that a password cannot be hashed: it has more than 72 bytes.
var ErrPassword = errors.New("the password is too long")

// Config configures Passwords. The zero value has the defaults.
type Config struct {
	// Cost is bcrypt's cost, 4 to 31; other values stand for its default, 10.
	Cost int
	// AtOnce is how many passwords are hashed or compared at a time. Default 2.
	AtOnce int
}

// Passwords hashes and compares. Any goroutine may use it.
type Passwords struct {
	cost  int
	turns *fairshare.Share
	// none returns the hash with which the passwords of unknown users are compared, so that they
	// take as long as those of known ones. It is made when it is first needed.
	none func() ([]byte, error)
}

// New makes Passwords.
func New(c Config) *Passwords {
	if c.Cost < bcrypt.MinCost || c.Cost > bcrypt.MaxCost {
		c.Cost = bcrypt.DefaultCost
	}
	if c.AtOnce <= 0 {
		c.AtOnce = 2
	}
	return &Passwords{cost: c.Cost, turns: fairshare.New(fairshare.Limits{
		Calls: int64(c.AtOnce), PartyWaits: waitingPerParty, AllWait: waitingInAll}),
		none: sync.OnceValues(func() ([]byte, error) {
			return bcrypt.GenerateFromPassword([]byte("of no user"), c.Cost)
		})}
}

// Hash returns the hash of a password, with a salt of its own. It waits for its turn until ctx
// ends. The errors are fairshare.ErrBusy, ErrPassword with bcrypt's text, and that of ctx.
func (p *Passwords) Hash(ctx context.Context, party, password string) ([]byte, error) {
	if err := p.turns.Enter(ctx, party, 0); err != nil {
		return nil, err
	}
	defer p.turns.Leave(0)
	hash, err := bcrypt.GenerateFromPassword([]byte(password), p.cost)
	if errors.Is(err, bcrypt.ErrPasswordTooLong) {
		return nil, &tooLong{err}
	}
	return hash, err
}

// tooLong is ErrPassword with bcrypt's text.
type tooLong struct{ error }

func (*tooLong) Is(target error) bool { return target == ErrPassword }

// Compare reports whether a hash is that of a password. hash is nil for an unknown user: then the
// result is false, and takes as long. It waits for its turn until ctx ends; the errors are
// fairshare.ErrBusy and that of ctx.
func (p *Passwords) Compare(
	ctx context.Context, party string, hash []byte, password string,
) (bool, error) {
	if err := p.turns.Enter(ctx, party, 0); err != nil {
		return false, err
	}
	defer p.turns.Leave(0)
	against := hash
	if cost, err := bcrypt.Cost(hash); err != nil || cost > p.cost+dearer {
		hash = nil
	}
	if hash == nil {
		var err error
		if against, err = p.none(); err != nil {
			return false, fmt.Errorf("hash of no user: %w", err)
		}
	}
	equal := bcrypt.CompareHashAndPassword(against, []byte(password)) == nil
	return equal && hash != nil, nil
}
