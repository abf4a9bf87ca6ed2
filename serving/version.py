"""The version of Attendant: that of the code that runs.

The metadata of an editable installation has the version of the day when it was installed, so that
nothing here asks for it. The wheel, the API's description and `attendant --version` read this file;
tests hold the chart to it.
"""

VERSION = "1.0.0"
