CLAIMS = ()
