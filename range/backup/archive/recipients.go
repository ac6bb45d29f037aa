package archive

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Recipients are the public keys that data is encrypted for. Only the holders of the matching
// identities can read the data.
type Recipients []*age.X25519Recipient

// Identities are secret keys. They decrypt data that was encrypted for the matching recipients.
type Identities []*age.X25519Identity

// ParseRecipients parses recipients ("age1...") as age-keygen prints them. It drops duplicates.
func ParseRecipients(texts ...string) (Recipients, error) {
	var all Recipients
	seen := map[string]bool{}
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-") {
			// The text is a secret: no error quotes it.
			return nil, invalid("an identity is given where a recipient belongs: keep the identity secret, " +
				"and give the recipient that age-keygen -y prints for it")
		}
		recipient, err := age.ParseX25519Recipient(text)
		if err != nil {
			return nil, invalid("the recipient %q: %w; give recipients of age-keygen (age1...), and no SSH "+
				"keys, plugins or post-quantum keys", text, err)
		}
		if !seen[recipient.String()] {
			seen[recipient.String()] = true
			all = append(all, recipient)
		}
	}
	return all, nil
}

// Strings returns the recipients as ParseRecipients reads them.
func (r Recipients) Strings() []string {
	texts := make([]string, len(r))
	for i, recipient := range r {
		texts[i] = recipient.String()
	}
	return texts
}

// ParseIdentities parses an identity file as age-keygen writes it: one identity in a line, and
// comments after number signs. No error quotes the text, because the text is secret.
func ParseIdentities(text string) (Identities, error) {
	if strings.HasPrefix(text, "-----BEGIN AGE ENCRYPTED FILE-----") ||
		strings.HasPrefix(text, "age-encryption.org/") {
		return nil, invalid("the identity file is encrypted: decrypt it with age -d first")
	}
	var all Identities
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		identity, err := age.ParseX25519Identity(line)
		if err != nil {
			return nil, invalid("line %d of the identity file is no identity of age-keygen "+
				"(AGE-SECRET-KEY-1...)", number)
		}
		all = append(all, identity)
	}
	if len(all) == 0 {
		return nil, invalid("the identity file has no identity (AGE-SECRET-KEY-1...)")
	}
	return all, nil
}

// Recipients returns the recipients that match the identities.
func (i Identities) Recipients() Recipients {
	all := make(Recipients, len(i))
	for at, identity := range i {
		all[at] = identity.Recipient()
	}
	return all
}

// decrypt returns a reader of the decrypted body.
func decrypt(body io.Reader, recipients []string, identities Identities) (io.Reader, error) {
	missing := func() error {
		text := "give the identity file (AGE-SECRET-KEY-1...) of " + strings.Join(recipients, " or ")
		if len(identities) > 0 {
			text += "; those given are of " + strings.Join(identities.Recipients().Strings(), ", ")
		}
		return fmt.Errorf("%w: %s", ErrNoIdentity, text)
	}
	if len(identities) == 0 {
		return nil, missing()
	}
	all := make([]age.Identity, len(identities))
	for i, identity := range identities {
		all[i] = identity
	}
	plain, err := age.Decrypt(body, all...)
	var none *age.NoIdentityMatchError
	switch {
	case errors.As(err, &none):
		return nil, missing()
	case err != nil:
		return nil, corrupt("it cannot be decrypted: %w", err)
	}
	return plain, nil
}
