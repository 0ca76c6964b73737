"""probagg"""
from probagg.pac import PAC
