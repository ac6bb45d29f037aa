package authority

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

// A token is the base64 form, for URLs and without padding, of
//
//	format (1 byte), time in Unix milliseconds (8), generation of the user (8), index (8), user,
//	HMAC-SHA256 over all of these (32)
//
// Numbers are big endian.
const (
	tokenFormat = 1
	tokenHead   = 1 + 8 + 8 + 8
	// MaxTokenUser bounds the length of the user name in a token, in bytes.
	MaxTokenUser = 4 << 10
)

// ErrToken means that a token is not valid, or no longer.
var ErrToken = errors.New("invalid auth token")

// Token is the content of a token.
type Token struct {
	User       string
	Generation uint64
	// Index is the applied index at which the token was made. A member that has applied less may
	// not know the user yet.
	Index uint64
	// Issued is when the token was made, by the clock of the member that made it.
	Issued time.Time
	// ID identifies the token. It is not secret.
	ID [16]byte

	signed, sum []byte
}

// Sign makes a token for a user with the generation of Login.
func (s *State) Sign(t Token) string {
	data := append(make([]byte, 0, tokenHead+len(t.User)+sha256.Size), tokenFormat)
	data = binary.BigEndian.AppendUint64(data, uint64(t.Issued.UnixMilli()))
	data = binary.BigEndian.AppendUint64(data, t.Generation)
	data = binary.BigEndian.AppendUint64(data, t.Index)
	data = append(data, t.User...)
	return base64.RawURLEncoding.EncodeToString(append(data, s.sum(data)...))
}

func (s *State) sum(data []byte) []byte {
	mac := hmac.New(sha256.New, s.record.Key)
	mac.Write(data)
	return mac.Sum(nil)
}

// ParseToken parses a token. Its content must not be trusted before Verify.
func ParseToken(text string) (Token, error) {
	if len(text) > base64.RawURLEncoding.EncodedLen(tokenHead+MaxTokenUser+sha256.Size) {
		return Token{}, ErrToken
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(data) <= tokenHead+sha256.Size || data[0] != tokenFormat {
		return Token{}, ErrToken
	}
	n := len(data) - sha256.Size
	t := Token{User: string(data[tokenHead:n]), signed: data[:n], sum: data[n:],
		Issued:     time.UnixMilli(int64(binary.BigEndian.Uint64(data[1:]))),
		Generation: binary.BigEndian.Uint64(data[9:]), Index: binary.BigEndian.Uint64(data[17:])}
	copy(t.ID[:], t.sum)
	return t, nil
}

// Verify checks that a parsed token was signed with the State's key, and that its user exists and
// has had no new password since. The caller decides whether it is too old.
func (s *State) Verify(t Token) error {
	if !s.Enabled() || len(t.signed) == 0 || !hmac.Equal(t.sum, s.sum(t.signed)) {
		return ErrToken
	}
	u := s.users[t.User]
	if u == nil || u.record.Generation != t.Generation {
		return ErrToken
	}
	return nil
}
