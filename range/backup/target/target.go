package target

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// MaxObject is the size of the largest object, in bytes.
const MaxObject = 128 << 20

// Target keeps objects under names. All methods are safe for concurrent use. Methods of an S3
// target retry failures that may pass, within Options.Retries and until their context ends.
type Target interface {
	// Put stores an object whole, and replaces an earlier one of the name. After an error the object
	// is the earlier one, the new one, or absent if there was no earlier one; never a part.
	Put(ctx context.Context, name string, data []byte) error
	// Create stores an object if there is none of the name; otherwise it returns ErrExists. One of
	// several concurrent writers wins. An object that a retry finds, and that has the same content,
	// counts as written by this call if the answer of an earlier attempt was lost. So content that
	// decides between writers should name its writer.
	Create(ctx context.Context, name string, data []byte) error
	// Get returns the whole object, or ErrNotFound.
	Get(ctx context.Context, name string) ([]byte, error)
	// List yields the objects whose names begin with a prefix, in ascending bytewise order of names.
	// The prefix need not end with a slash; the empty one lists everything. An error ends the list.
	// Objects that are written or deleted meanwhile may be listed or not.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object. It is no error if there is none of the name.
	Delete(ctx context.Context, name string) error
	// Sweep removes what crashed writers have left of objects whose names begin with a prefix, and
	// that was last changed before a time. It returns how many files and empty folders it removed.
	// An S3 target never has any.
	Sweep(ctx context.Context, prefix string, olderThan time.Time) (removed int, err error)
	// String is the URL in its shortest form, which Open accepts. It has no credentials.
	String() string
	// Close releases idle connections. No other method may be called afterwards.
	Close() error
}

// Object describes an object of a list.
type Object struct {
	Name     string
	Size     int64
	Modified time.Time
}

// Options are settings of a target. The zero value is good.
type Options struct {
	// Retries is how failures of an S3 target are retried that may pass. The zero value waits 200 ms
	// after the first one, doubles that up to 10 s, half of it random, and gives up after 2 minutes.
	Retries backoff.Backoff
	// StallTimeout is how long a connection to S3 may make no progress; zero means 30 s.
	StallTimeout time.Duration
	// Credentials of an S3 target. If they are nil, they come from the first of these that has some:
	// the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), the shared
	// files of AWS (~/.aws/credentials, AWS_PROFILE), the role of the machine, container or pod.
	Credentials *Credentials
	// OnRetry is called before each wait, by the goroutine of the call, if it is not nil.
	OnRetry func(operation, name string, err error)

	// dial connects to S3 servers in tests; nil means by TCP.
	dial dialer
}

// Credentials are what requests to S3 are signed with. SessionToken is empty for lasting keys.
type Credentials struct{ AccessKey, SecretKey, SessionToken string }

// String hides the credentials from logs.
func (Credentials) String() string { return "(credentials)" }

// Open returns the target of a URL: file:///directory, or s3://bucket/prefix with the optional
// parameters endpoint (https://host:port; http:// is not encrypted), region, and path-style (true
// or false). Open checks the URL, and that there are credentials for S3; it sends nothing to the
// target. The directory of a file target is made by the first write, if the one above it exists.
func Open(ctx context.Context, rawURL string, options Options) (Target, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse contains the URL, which may contain a password.
		return nil, fmt.Errorf("%w: the URL of a backup target cannot be read: give "+
			"file:///directory or s3://bucket/prefix, with unusual characters as %%-escapes",
			ErrInvalid)
	}
	if u.User != nil {
		return nil, fmt.Errorf("%w: the URL of a backup target must not contain credentials, because "+
			"URLs end up in logs: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, "+
			"or use ~/.aws/credentials or the role of the machine", ErrInvalid)
	}
	switch u.Scheme {
	case "file":
		return openFile(u)
	case "s3":
		return openS3(ctx, u, options)
	}
	return nil, fmt.Errorf("%w: a backup target is file:///directory or s3://bucket/prefix, and not "+
		"of the scheme %q", ErrInvalid, u.Scheme)
}
