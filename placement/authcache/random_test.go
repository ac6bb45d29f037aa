package authcache

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/rpc/access"
)

// Whatever happens to the server, its network and the tables: no client is let in that could not
// have been at some moment of the last 10 s; and one that may all the time is let in as soon as the
// server hears. Servers that were told to follow crash and come back as well.
func TestNeverStale(t *testing.T) {
	for seed := range uint64(20) {
		in(t, func(t *testing.T, c *core) {
			random := rand.New(rand.NewPCG(seed, 1))
			c.users()
			s := begin(t, c, Flag{1, true})
			synctest.Wait()
			may, since := true, time.Now() // since when the core says so
			cut, cutEnded := false, time.Now()
			for range 400 {
				switch random.IntN(6) {
				case 0:
					if may = !may; may {
						c.change(grant(authority.KeyspaceRead))
					} else {
						c.change(revoke(0))
					}
					since = time.Now()
				case 1:
					cut = !cut
					c.setCut(cut)
					cutEnded = time.Now()
				case 2:
					if random.IntN(4) == 0 {
						s.stop()
						s = begin(t, c, s.disk)
						cutEnded = time.Now()
					}
				default:
					time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
				}
				err := s.Client(access.Credentials{CertificateName: "u"}).May(read)
				if age := time.Since(since); err == nil && !may && age > DefaultGrace {
					t.Fatalf("seed %d: it is let in %s after its permission was taken", seed, age)
				}
				settled := time.Since(cutEnded) > 10*time.Second
				if err != nil && may && !cut && settled && time.Since(since) > time.Second {
					t.Fatalf("seed %d: it is refused: %v", seed, err)
				}
			}
			s.stop()
		})
	}
}
